"""The hints of a member: what it was handed, and what it remembers of streams that it ran itself.

The shell around `core/handover/rules.py` and `core/handover/received.py`, for the HTTP routes. A hint is only
a guess: the worker that opens the stream checks it against the stored head. The work comes in slices; a
change takes effect in one of them, so no caller sees it half made. Hints are bounded in size and age.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.handover.bundle_format import digesting
from services.consumer.core.handover.received import Copy, completing, opening_copy
from services.consumer.core.handover.rules import (
    BundleRequest,
    Completion,
    HandoverLimits,
    Offer,
    Situation,
    check_claim,
    check_offer,
    check_sender,
    extends,
)
from services.consumer.core.handover.sent import taking_delta
from services.consumer.core.slices import Steps, while_true
from services.consumer.handover.arrivals import Arrivals
from shared.errors import BundleRejected, HandoverRefused, NotFound
from shared.model.group import GroupSettings

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Promised:
    """A copy that waits for its delta."""

    offer: Offer
    copy: Copy
    size: int
    since_s: float


@dataclass(slots=True, kw_only=True)
class Hint:
    """A stream to go on with, if it stands on the stored head.

    `completion`: the message it was completed by; None for this member's own memory. `why`: it was
    handed over.
    """

    state: Stream
    since_s: float
    size: int = 0
    completion: Completion | None = None
    why: str = ""


class HintStore:
    """Receives, keeps and gives hints. `situation()`: what offers are checked against (None: not joined yet).

    Calls `on_promised(stream)` when it holds a copy, `on_expected(stream, position)` when that is complete.
    """

    def __init__(
        self,
        *,
        settings: GroupSettings,
        stream_limits: StreamLimits,
        limits: HandoverLimits,
        now_s: Callable[[], float],
        situation: Callable[[], Situation | None],
        on_promised: Callable[[int], None] = lambda stream: None,
        on_expected: Callable[[int, int], None] = lambda stream, position: None,
    ) -> None:
        self.limits = limits
        self.arrivals = Arrivals(now_s)
        self._settings = settings
        self._stream_limits = stream_limits
        self._now_s = now_s
        self._situation = situation
        self._on_promised = on_promised
        self._on_expected = on_expected
        self._promised: dict[int, _Promised] = {}
        self._handed: dict[int, Hint] = {}
        self._own: dict[int, Hint] = {}

    def __repr__(self) -> str:
        return f"<HintStore {len(self._promised)} promised, {len(self._handed)} handed, {len(self._own)} own>"

    @property
    def promised(self) -> set[int]:
        """Streams that this member has agreed to take over."""
        self.forget_old()
        return self._promised.keys() | self._handed.keys()

    @property
    def sizes(self) -> Iterator[tuple[int, int]]:
        """How many sessions and covered keys each of its streams and copies holds, and bytes of fragments."""
        for promised in self._promised.values():
            copy = promised.copy
            yield len(copy.sessions) + len(copy.covered), copy.bytes
        for hint in (*self._handed.values(), *self._own.values()):
            yield hint.state.open_sessions + hint.state.covered_keys, hint.state.state_bytes

    @property
    def expects(self) -> bool:
        """Whether a release is due at any moment: the stream stands still until it is claimed."""
        return bool(self._handed)

    def receiving_copy(self, offer: Offer, body: bytes, digest: str | None = None) -> Steps[None]:
        """Holds a first copy, from the last slice on; it replaces an earlier copy of the stream.

        `digest`: of the body, if it was computed while the body arrived. Raises NotFound, Unauthorized,
        HandoverRefused, BundleRejected.
        """
        self._check_copy(offer, len(body))
        if (digest or (yield from digesting(body))) != offer.digest:
            raise HandoverRefused("the copy does not have the digest that was announced")
        copy = yield from opening_copy(body, offer.digest)
        self._check_copy(offer, len(body))  # again: anything may have happened between the slices
        handed = self._handed.get(offer.stream)
        if handed is not None and handed.completion is not None:
            if handed.completion.base_digest == offer.digest or copy.position < handed.state.position:
                return  # a repeated or late message, and the stream is already complete
            del self._handed[offer.stream]
        self._promised[offer.stream] = _Promised(
            offer=offer, copy=copy, size=len(body), since_s=self._now_s()
        )
        self._on_promised(offer.stream)

    def _check_copy(self, offer: Offer, size: int) -> None:
        self.forget_old()
        check_offer(self._here(), offer, self.limits)
        held = sum(one.size for stream, one in self._promised.items() if stream != offer.stream)
        held += sum(one.size for one in self._handed.values())
        if size > self.limits.max_body_bytes:
            raise BundleRejected(f"{size} bytes are too many")
        if held + size > self.limits.max_held_bytes:
            raise HandoverRefused(f"{size} bytes are too many beside the {held} that are held")

    def receiving_delta(self, completion: Completion, body: bytes, digest: str | None = None) -> Steps[None]:
        """Completes a copy; from the last slice on the stream's release is expected.

        `digest`: of the body, if it was computed while the body arrived. Raises NotFound, Unauthorized,
        HandoverRefused, BundleRejected. A delta that matched its copy but could not be applied has used the
        copy up: the donor continues, and starts again with a new one.
        """
        self._check_delta(completion)
        stream = completion.stream
        handed = self._handed.get(stream)
        if handed is not None and handed.completion == completion:
            return  # a repeated message
        if len(body) > self.limits.max_body_bytes:
            raise BundleRejected(f"{len(body)} bytes are too many")
        if (digest or (yield from digesting(body))) != completion.digest:
            raise HandoverRefused("the delta does not have the digest that was announced")
        promised = self._promised.get(stream)
        if promised is None or not extends(completion, promised.offer):
            raise HandoverRefused(f"no copy of stream {stream} is held here that this delta extends")
        del self._promised[stream]
        state = yield from self._completing(promised.copy, stream, body)
        self._check_delta(completion)  # again: anything may have happened between the slices
        self._handed[stream] = Hint(
            state=state,
            since_s=self._now_s(),
            size=promised.size + len(body),
            completion=completion,
            why=promised.offer.why,
        )
        self._on_expected(stream, state.position)

    def _check_delta(self, completion: Completion) -> None:
        self.forget_old()
        check_sender(self._here(), completion.group, completion.stream, completion.donor)
        check_claim(self._here(), completion.stream, completion.donor, completion.epoch)

    def giving(self, request: BundleRequest) -> Steps[bytes]:
        """The whole bundle of a stream that this member has stopped. Raises NotFound, Unauthorized."""
        self.forget_old()
        check_sender(self._here(), request.group, request.stream, request.member)
        hint = self._own.get(request.stream)
        if hint is not None and hint.state.is_memory:
            head = hint.state.head
            if (head.epoch, head.seq) == (request.epoch, request.seq):
                # once it is taken from here, the stream may run again, and change
                body = yield from while_true(
                    lambda: self._own.get(request.stream) is hint, taking_delta(hint.state, None)
                )
                if body is not None:
                    return body
        raise NotFound(f"no bundle of stream {request.stream} with epoch {request.epoch}, seq {request.seq}")

    def opening_fetched(self, stream: int, body: bytes) -> Steps[Stream]:
        """The stream of a bundle that another member gave. Raises BundleRejected."""
        return self._completing(None, stream, body)

    def keep(self, state: Stream) -> None:
        """Remembers a stream that this member has stopped, if an owner can go on from it."""
        self.forget_old()
        if state.is_memory:
            self._own[state.stream] = Hint(state=state, since_s=self._now_s())
        else:
            self._own.pop(state.stream, None)

    def take(self, stream: int) -> list[Hint]:
        """Removes and returns the hints for a stream that is about to be opened, the likeliest first."""
        self.forget_old()
        self._promised.pop(stream, None)
        return [hint for held in (self._handed, self._own) if (hint := held.pop(stream, None)) is not None]

    def withdraw(self, stream: int) -> None:
        """Forgets what was handed of a stream: another member has claimed it."""
        self._handed.pop(stream, None)
        self.arrivals.end(stream)

    def forget_old(self) -> None:
        """Drops what has been held for too long."""
        oldest_s = self._now_s() - self.limits.hold_s
        for held in (self._promised, self._handed, self._own):
            for stream in [stream for stream, one in held.items() if one.since_s < oldest_s]:
                del held[stream]

    def _here(self) -> Situation:
        situation = self._situation()
        if situation is None:
            raise HandoverRefused("this member has not joined yet")
        return situation

    def _completing(self, copy: Copy | None, stream: int, body: bytes) -> Steps[Stream]:
        here = self._here()
        return completing(
            copy,
            body,
            group=here.group,
            stream=stream,
            settings=self._settings,
            limits=self._stream_limits,
            now_s=self._now_s(),
        )
