"""The properties of bundles find faults: whatever gets lost in transit, some random log shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from services.consumer.core.commits import checkpoint_format
from services.consumer.core.commits.stream import Stream
from services.consumer.core.handover import bundle_format, received
from services.consumer.core.handover import sent as sending
from services.consumer.core.handover.bundle_format import BundleWire, SessionWire
from services.consumer.core.handover.received import Copy
from services.consumer.core.sessions.assembly import Assembler
from services.consumer.core.sessions.open_table import OpenTable
from services.consumer.core.slices import Steps
from shared.model.head import Counts
from tests.logs import difference, is_found
from tests.unit.consumer.core.test_bundle import lost_in_transit

Patch = pytest.MonkeyPatch


def change_sessions(patch: Patch, **changes: Callable[[SessionWire], Any]) -> None:
    """Every session is sent with these fields changed."""
    wire = bundle_format.session_wire

    def wrong(*args: Any) -> SessionWire:
        sent = wire(*args)
        return msgspec.structs.replace(sent, **{name: change(sent) for name, change in changes.items()})

    patch.setattr(sending, "session_wire", wrong)


def change_bundles(patch: Patch, **changes: Callable[[BundleWire], Any]) -> None:
    """Every bundle is sent with these fields changed."""

    def wrong(body: bytes) -> bytes:
        sent = bundle_format.decode_bundle(body)
        return msgspec.msgpack.encode(
            msgspec.structs.replace(sent, **{name: change(sent) for name, change in changes.items()})
        )

    copy, delta = sending.copying, sending.taking_delta

    def wrong_copy(stream: Stream) -> Steps[tuple[bytes, sending.SentCopy]]:
        body, base = yield from copy(stream)
        return wrong(body), base

    def wrong_delta(stream: Stream, base: sending.SentCopy | None) -> Steps[bytes]:
        return wrong((yield from delta(stream, base)))

    for module in ("tests.logs", "tests.unit.consumer.core.test_bundle"):
        patch.setattr(f"{module}.copying", wrong_copy)
        patch.setattr(f"{module}.taking_delta", wrong_delta)


def adopt_with(patch: Patch, **changes: Any) -> None:
    """The recipient adopts something other than what it was sent."""
    adopt = Assembler.adopt
    patch.setattr(Assembler, "adopt", lambda self, **kw: adopt(self, **(kw | changes)))


def take_over_with(patch: Patch, **changes: Any) -> None:
    """The recipient takes over uncommitted state other than what it was sent."""
    take_over = Stream.take_over
    patch.setattr(Stream, "take_over", lambda self, **kw: take_over(self, **(kw | changes)))


def change_tails(patch: Patch, **changes: Any) -> None:
    """Every delta's tail is sent with these fields changed."""

    def change(sent: BundleWire) -> Any:
        return msgspec.structs.replace(sent.tail, **changes) if sent.tail is not None else None

    change_bundles(patch, tail=change)


def lose_keys_covered_by_silence(patch: Patch) -> None:
    """Changes since the copy are assumed to start at its position, but silence covers an offset below it."""
    delta = sending.taking_delta

    def wrong(stream: Stream, base: Any) -> Steps[bytes]:
        if base is None:
            return delta(stream, base)
        later = sending.SentCopy(
            stream=base.stream,
            head=base.head,
            position=base.position + 1,
            digest=base.digest,
            known=base.known,
        )
        return delta(stream, later)

    patch.setattr("tests.logs.taking_delta", wrong)
    patch.setattr("tests.unit.consumer.core.test_bundle.taking_delta", wrong)


def lose_remembered_ids(patch: Patch) -> None:
    """Covered keys arrive without the ids that they remember."""
    wire = checkpoint_format.covered_wire
    patch.setattr(
        sending, "covered_wire", lambda key, entry: msgspec.structs.replace(wire(key, entry), ids=[])
    )


def keep_the_order_of_the_copy(patch: Patch) -> None:
    """Sessions keep the order of the copy, so some silent sessions would go unnoticed."""

    class Unmoved(OpenTable):
        def move_to_end(self, key: str, last: bool = True) -> None:
            pass

    patch.setattr(received, "Copy", lambda **fields: Copy(sessions=Unmoved(), **fields))


def trust_hints(patch: Patch, is_memory: Callable[[Stream], bool]) -> None:
    """A hint is used whatever the stored head says, and a stream counts as memory by `is_memory` alone."""
    patch.setattr(Stream, "is_memory", property(is_memory))
    patch.setattr("tests.logs.is_valid", lambda memory, stored: True)


Plant = Callable[[Patch], None]

LOST: dict[str, Plant] = {
    "pending sessions": lambda patch: take_over_with(patch, pending=[]),
    "changes since the commit": lambda patch: change_tails(patch, changed=[], unparked=[]),
    "covered keys": lambda patch: change_bundles(patch, covered=lambda sent: []),
    "remembered ids": lose_remembered_ids,
    "ids of open sessions": lambda patch: change_sessions(
        patch, ids=lambda sent: [], ids_from=lambda sent: 0
    ),
    "keys closed since the copy": lambda patch: change_bundles(patch, closed=lambda sent: []),
    "how much is parked": lambda patch: change_sessions(
        patch, parked=lambda sent: 0, pin=lambda sent: max(sent.pin, sent.first_offset)
    ),
    "W": lambda patch: adopt_with(patch, w=-1),
    "A": lambda patch: adopt_with(patch, a=-1),
    "the lowest time": lambda patch: change_sessions(patch, low_t=lambda sent: sent.last_t),
}
"""What gets lost: it shows in the stream that arrives, and later in the delivered sessions."""
MISDELIVERED: dict[str, Plant] = {
    "keys covered since the copy": lambda patch: change_bundles(
        patch, covered=lambda sent: [] if sent.tail else sent.covered
    ),
    "one fragment is sent twice": lambda patch: change_sessions(
        patch, data=lambda sent: sent.data if sent.data_from == 0 else [b"{}", *sent.data]
    ),
    "one fragment fewer is announced": lambda patch: change_sessions(
        patch, data_from=lambda sent: sent.data_from + (sent.data_from > 0)
    ),
    "the silence so far": lambda patch: change_sessions(
        patch, w=lambda sent: 10**12, last_a=lambda sent: 10**12
    ),
    "memory is kept after an unknown commit": lambda patch: trust_hints(
        patch, lambda stream: not stream.assembler.is_replaying
    ),
    "every hint is trusted": lambda patch: trust_hints(patch, lambda stream: True),
}
"""Faults that show only in the delivered sessions, or break an owner."""
DIFFERENT: dict[str, Plant] = {
    "which closed sessions are still parked": lambda patch: change_tails(patch, unparked=[]),
    "counts since the head": lambda patch: take_over_with(patch, counts=Counts()),
    "keys covered by silence": lose_keys_covered_by_silence,
    "the pin of what is partly parked": lambda patch: change_sessions(
        patch, pin=lambda sent: sent.pin if sent.pin < 0 else sent.first_offset
    ),
    "W before the pin": lambda patch: change_sessions(patch, pin_w=lambda sent: -1),
    "A before the pin": lambda patch: change_sessions(patch, pin_a=lambda sent: -1),
    "the order of the sessions": keep_the_order_of_the_copy,
    "bytes read": lambda patch: take_over_with(patch, bytes_read=0, read_at=[(0, 0)]),
}
"""What gets lost and shows only in the stream that arrives."""


@pytest.mark.parametrize("fault", LOST | MISDELIVERED)
def test_what_gets_lost_in_transit_shows_in_the_sessions(fault: str, monkeypatch: Patch) -> None:
    """Sooner or later, owners that continue from such memory deliver other sessions than the eager fold."""
    (LOST | MISDELIVERED)[fault](monkeypatch)

    assert is_found(difference)


@pytest.mark.parametrize("fault", LOST | DIFFERENT)
def test_what_gets_lost_in_transit_shows_on_arrival(fault: str, monkeypatch: Patch) -> None:
    """The stream that arrives differs from the one sent."""
    (LOST | DIFFERENT)[fault](monkeypatch)

    assert is_found(lost_in_transit)
