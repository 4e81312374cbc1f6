"""A stream for scenario files that changes its owner: real streams, copies, deltas and hint stores, by hand.

The members `a`, `b` and `c` are in group `g`; `a` owns stream 0 in epoch 1, and all plan it for `b`. The log
and what Kafka stores (sessions, checkpoint, head) are in memory. Messages have names, so that a scenario can
lose them, repeat them, send them late, or to another member.
"""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec

from services.consumer.core.commits.checkpoint import new_stream
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.handover.rules import (
    BundleRequest,
    Completion,
    HandoverLimits,
    Offer,
    Situation,
    completion_of,
    is_valid,
    offer_of,
)
from services.consumer.core.handover.sent import SentCopy, copying, taking_delta
from services.consumer.core.slices import at_once
from services.consumer.handover.hints import HintStore
from shared.errors import BatonError
from shared.model.cluster import ClaimNode, MemberNode, View
from shared.model.head import Head
from shared.service.signing import digest_of
from tests.logs import SETTINGS, Store, commit_of, delivered_rows
from tests.reference import Rec, fold_eagerly
from tests.scenarios.datadriven import Command

MEMBERS = ("a", "b", "c")
LIMITS = StreamLimits()


class HandoverScenario:
    """A command `copy as=c1` calls `do_copy` with `as=c1`."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._notes: list[str] = []
        self._log: list[Rec] = []
        self._kafka, self._rng = Store(), random.Random(0)
        self._claim: ClaimNode | None = ClaimNode(member="a", epoch=1)
        self._situation = Situation(
            group="g",
            member="",
            view=View(count=1, members={name: MemberNode(address=name) for name in MEMBERS}),
            planned={0: "b"},
            quota=1,
            promised=(),
            lease_ms=4000,
        )
        self._messages: dict[str, tuple[Offer | Completion, bytes]] = {}
        self._copies: dict[str, tuple[SentCopy, Offer]] = {}
        self._stores = {name: self._store_of(name) for name in MEMBERS}
        self._running: dict[str, Stream] = {"a": self._load(1)}

    def run(self, command: Command) -> str:
        """See ScenarioWorld."""
        try:
            return str(getattr(self, f"do_{command.name}")(*command.words, **command.options) or "")
        except BatonError as error:
            return f"{type(error).__name__}: {error.detail}"

    def do_read(self, *keys: str, by: str = "") -> None:
        """Records for these keys are appended (`k!` ends its session), and the owner, or `by`, reads them."""
        for key in keys:
            value = msgspec.json.encode({"key": key.rstrip("!"), "end": key.endswith("!")})
            offset = len(self._log)
            self._log.append(Rec(offset, 1000 + offset, key.rstrip("!").encode(), value))
        stream = self._running[by or self._owner]
        stream.fold(self._log[stream.position :], 0.0)

    def do_commit(self, by: str = "", lost: str = "") -> None:
        """The owner, or `by`, commits; `lost`: `before` or `after` it took effect, and unknown to it."""
        stream = self._running[by or self._owner]
        commit = commit_of(stream)
        if lost == "before":
            return
        offsets = self._kafka.commit(commit, self._rng)
        if lost != "after":
            stream.committed(commit, offsets, 0.0)

    def do_copy(self, name: str) -> str:
        """The owner takes a copy under this name."""
        body, base = at_once(copying(self._running[self._owner]))
        assert self._claim is not None
        offer = offer_of(base, epoch=self._claim.epoch, donor=self._claim.member, recipient="", why="a test")
        self._copies[name], self._messages[name] = (base, offer), (offer, body)
        state = base.stream
        return f"{name}: {state.open_sessions} sessions of {state.state_bytes} bytes at {base.position}"

    def do_delta(self, name: str, on: str) -> str:
        """The owner takes a delta on a copy."""
        base, offer = self._copies[on]
        body = at_once(taking_delta(base.stream, base))
        completion = completion_of(offer, digest_of(body), copy_ms=1.0, stopped_at_ms=5)
        self._messages[name] = completion, body
        head = base.stream.head
        return f"{name}: to {base.stream.position}, on head {head.epoch}/{head.seq}"

    def do_send(self, name: str, to: str = "b", body: str = "", **changes: str) -> str:
        """A message arrives, perhaps with other fields or (`body=`) another body."""
        message, sent = self._messages[name]
        typed = {key: type(getattr(message, key))(value) for key, value in changes.items()}
        message = msgspec.structs.replace(message, **typed)
        store = self._stores[to]
        if isinstance(message, Offer):
            at_once(store.receiving_copy(message, body.encode() or sent))
        else:
            at_once(store.receiving_delta(message, body.encode() or sent))
        notes, self._notes = self._notes, []
        return ", ".join(["accepted", *notes])

    def do_stop(self) -> None:
        """The owner stops reading and keeps what it has as memory."""
        name = self._owner
        self._stores[name].keep(self._running.pop(name))

    def do_forget(self, name: str) -> None:
        """A member's process starts anew: its hints are gone."""
        self._stores[name] = self._store_of(name)

    def do_release(self) -> None:
        """The claim is gone."""
        self._claim = None

    def do_claim(self, name: str, epoch: str, ask: str = "") -> str:
        """A member claims the stream and opens it; `ask`: a former owner that may have a bundle."""
        self._claim = ClaimNode(member=name, epoch=int(epoch))
        stored = self._kafka.head or new_stream().head
        store = self._stores[name]
        for hint in store.take(0):
            if is_valid(hint.state, stored):
                how = "its own memory" if hint.completion is None else f"{hint.completion.donor}'s delta"
                return self._open(name, hint.state, how)
        if ask:
            try:
                body = at_once(self._stores[ask].giving(self._request(name, stored)))
                return self._open(name, at_once(store.opening_fetched(0, body)), f"{ask}'s bundle")
            except BatonError as error:
                return f"{error.detail}\n{self._open(name, self._load(int(epoch)), 'a replay')}"
        return self._open(name, self._load(int(epoch)), "a replay")

    def do_others_claim(self, name: str) -> None:
        """A member that waits for the release sees that it was too late."""
        self._stores[name].withdraw(0)

    def do_ask(self, name: str, of: str, epoch: str, seq: str, group: str = "g", stream: str = "0") -> str:
        """A member asks another one for the bundle of a head."""
        request = BundleRequest(
            group=group, stream=int(stream), epoch=int(epoch), seq=int(seq), member=name, recipient=of
        )
        return f"{len(at_once(self._stores[of].giving(request)))} bytes"

    def do_view(
        self, name: str, state: str = "", quota: str = "", lease_ms: str = "", plans_for: str = ""
    ) -> None:
        """What the members see from now on: a member's state, its share and lease, and the plan's owner."""
        here = self._situation
        members = dict(here.view.members)
        if state:
            members[name] = msgspec.convert({"address": name, "state": state}, MemberNode)
        self._situation = replace(
            here,
            view=replace(here.view, members=members),
            quota=int(quota or here.quota),
            lease_ms=int(lease_ms or here.lease_ms),
            planned={0: plans_for or here.planned[0]},
        )

    def do_wait(self, duration: str) -> None:
        """Time passes."""
        self._now_s += float(duration.removesuffix("s"))

    def do_hints(self, name: str) -> str:
        """What a member holds (also what is too old), and whether it expects a release."""
        store = self._stores[name]
        return f"{name}: {store!r}{', expects a release' if store.expects else ''}"

    def do_state(self) -> str:
        """The owners (more than one where a former one is a zombie), the stored head, and what is open."""
        lines = [
            f"{name}: at {stream.position}, open {sorted(stream.assembler.open)}, "
            f"{'uncommitted changes' if stream.has_changes else 'all committed'}"
            for name, stream in sorted(self._running.items())
        ]
        head = self._kafka.head
        return "\n".join([*lines, f"kafka: {f'{head.epoch}/{head.seq} at {head.position}' if head else '-'}"])

    def do_check(self) -> str:
        """Whether the sessions, delivered and open, are those of one eager fold of the log, each once."""
        closed, open_ = fold_eagerly(self._log, SETTINGS)
        delivered = delivered_rows(self._kafka)
        assert sorted(delivered) == sorted(session.row() for session in closed)
        held = self._running[self._owner].assembler.open
        assert {s.key: len(s.offsets) for s in open_} == {s.key: len(s.data) for s in held.values()}
        return f"{len(delivered)} delivered, {len(held)} open: as one fold gives"

    @property
    def _owner(self) -> str:
        assert self._claim is not None
        return self._claim.member

    def _store_of(self, name: str) -> HintStore:
        return HintStore(
            settings=SETTINGS,
            stream_limits=LIMITS,
            limits=HandoverLimits(),
            now_s=lambda: self._now_s,
            situation=lambda: self._situation_of(name),
            on_promised=lambda stream: self._notes.append(f"{name} prepares for stream {stream}"),
            on_expected=lambda _, position: self._notes.append(f"{name} awaits the release at {position}"),
        )

    def _situation_of(self, name: str) -> Situation:
        claims = {0: self._claim} if self._claim is not None else {}
        return replace(
            self._situation,
            member=name,
            view=replace(self._situation.view, claims=claims),
            promised=self._stores[name].promised,
        )

    def _request(self, name: str, head: Head) -> BundleRequest:
        return BundleRequest(group="g", stream=0, epoch=head.epoch, seq=head.seq, member=name, recipient="")

    def _load(self, epoch: int) -> Stream:
        return Stream(
            group="g",
            stream=0,
            epoch=epoch,
            settings=SETTINGS,
            limits=LIMITS,
            checkpoint=self._kafka.load(random.Random(1)),
            now_s=0.0,
        )

    def _open(self, name: str, stream: Stream, how: str) -> str:
        assert self._claim is not None
        if stream.epoch != self._claim.epoch:
            stream.resume(self._claim.epoch, 0.0)
        first = stream.position
        stream.start(0, len(self._log))
        stream.fold(self._log[first:], 0.0)
        self._running[name] = stream
        return f"{name} opens from {how}, reads from {first}"
