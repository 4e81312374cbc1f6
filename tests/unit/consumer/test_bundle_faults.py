"""The properties of bundles find faults: whatever gets lost in transit, some random log shows it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from services.consumer.core.commits import checkpoint
from services.consumer.core.commits.stream import Stream
from services.consumer.core.handover import bundle, bundle_format
from services.consumer.core.handover.bundle import Copy
from services.consumer.core.handover.bundle_format import BundleWire, SessionWire
from services.consumer.core.sessions.assembly import Assembler
from services.consumer.core.sessions.state import OpenSession
from shared.model.head import Counts
from tests.logs import difference
from tests.unit.consumer.test_bundle import lost_in_transit

FAULT_SEEDS = 2_000
"""Every planted fault must show within this many random logs."""

Patch = pytest.MonkeyPatch


def change_sessions(patch: Patch, **changes: Callable[[SessionWire], Any]) -> None:
    """Every session is sent with these fields changed."""
    wire = bundle_format.session_wire

    def wrong(*args: Any) -> SessionWire:
        sent = wire(*args)
        return msgspec.structs.replace(sent, **{name: change(sent) for name, change in changes.items()})

    patch.setattr(bundle, "session_wire", wrong)


def change_bundles(patch: Patch, **changes: Callable[[BundleWire], Any]) -> None:
    """Every bundle is sent with these fields changed."""
    encode = bundle_format.encode_bundle

    def wrong(sent: BundleWire) -> bytes:
        return encode(
            msgspec.structs.replace(sent, **{name: change(sent) for name, change in changes.items()})
        )

    patch.setattr(bundle, "encode_bundle", wrong)


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


def lose_pending_sessions(patch: Patch) -> None:
    """Closed but uncommitted sessions get lost."""
    take_over_with(patch, pending=[])


def lose_changes_since_the_commit(patch: Patch) -> None:
    """The next commit does not write what the donor covered after its last one."""
    change_tails(patch, changed=[], unparked=[])


def lose_unparked(patch: Patch) -> None:
    """The recipient does not learn that a closed session is still parked in the checkpoint."""
    change_tails(patch, unparked=[])


def lose_counts(patch: Patch) -> None:
    """The recipient counts from the head, not from the position."""
    take_over_with(patch, counts=Counts())


def lose_covered(patch: Patch) -> None:
    """The covered keys get lost."""
    change_bundles(patch, covered=lambda sent: [])


def lose_keys_covered_since_the_copy(patch: Patch) -> None:
    """The delta has no covered keys."""
    change_bundles(patch, covered=lambda sent: [] if sent.tail else sent.covered)


def lose_keys_covered_by_silence(patch: Patch) -> None:
    """Changes since the copy are assumed to start at its position, but silence covers an offset below it."""
    delta = bundle.take_delta

    def wrong(stream: Stream, base: Any) -> bytes:
        if base is None:
            return delta(stream, base)
        later = bundle.SentCopy(
            stream=base.stream,
            head=base.head,
            position=base.position + 1,
            digest=base.digest,
            known=base.known,
        )
        return delta(stream, later)

    patch.setattr("tests.logs.take_delta", wrong)
    patch.setattr("tests.unit.consumer.test_bundle.take_delta", wrong)


def lose_remembered_ids(patch: Patch) -> None:
    """Covered keys arrive without the ids that they remember."""
    wire = checkpoint.covered_wire
    patch.setattr(
        bundle, "covered_wire", lambda key, entry: msgspec.structs.replace(wire(key, entry), ids=[])
    )


def lose_ids(patch: Patch) -> None:
    """Open sessions arrive without their ids."""
    change_sessions(patch, ids=lambda sent: [], ids_from=lambda sent: 0)


def lose_closed_keys(patch: Patch) -> None:
    """Sessions closed since the copy stay open at the recipient."""
    change_bundles(patch, closed=lambda sent: [])


def send_one_fragment_twice(patch: Patch) -> None:
    """The delta starts one fragment too early."""
    change_sessions(patch, data=lambda sent: sent.data if sent.data_from == 0 else [b"{}", *sent.data])


def send_a_wrong_number_of_fragments(patch: Patch) -> None:
    """The delta claims to start one fragment later than it does."""
    change_sessions(patch, data_from=lambda sent: sent.data_from + (sent.data_from > 0))


def lose_parked(patch: Patch) -> None:
    """The recipient assumes that nothing is parked, so a closing session leaves parts in the checkpoint."""
    change_sessions(patch, parked=lambda sent: 0, pin=lambda sent: max(sent.pin, sent.first_offset))


def lose_pin(patch: Patch) -> None:
    """A session pins its first offset although part of it is parked."""
    change_sessions(patch, pin=lambda sent: sent.pin if sent.pin < 0 else sent.first_offset)


def lose_pin_w(patch: Patch) -> None:
    """W before the pin gets lost, so a later replay starts with a wrong W."""
    change_sessions(patch, pin_w=lambda sent: -1)


def lose_pin_a(patch: Patch) -> None:
    """A before the pin gets lost, so a later replay starts with a wrong A."""
    change_sessions(patch, pin_a=lambda sent: -1)


def lose_w(patch: Patch) -> None:
    """W gets lost."""
    adopt_with(patch, w=-1)


def lose_a(patch: Patch) -> None:
    """A gets lost."""
    adopt_with(patch, a=-1)


def lose_silence(patch: Patch) -> None:
    """Every session's last fragment seems to have arrived just now."""
    change_sessions(patch, w=lambda sent: 10**12, last_a=lambda sent: 10**12)


def lose_the_lowest_time(patch: Patch) -> None:
    """A session's lowest time gets lost."""
    change_sessions(patch, low_t=lambda sent: sent.last_t)


def keep_the_order_of_the_copy(patch: Patch) -> None:
    """Sessions keep the order of the copy, so some silent sessions would go unnoticed."""

    class Unmoved(OrderedDict[str, OpenSession]):
        def move_to_end(self, key: str, last: bool = True) -> None:
            pass

    patch.setattr(bundle, "Copy", lambda **fields: Copy(sessions=Unmoved(), **fields))


def lose_bytes_read(patch: Patch) -> None:
    """The number of bytes read, and the history of positions, get lost."""
    take_over_with(patch, bytes_read=0, read_at=[(0, 0)])


def keep_memory_after_an_unknown_commit(patch: Patch) -> None:
    """A commit with an unknown outcome counts as failed."""
    patch.setattr(Stream, "is_memory", property(lambda self: not self.assembler.is_replaying))
    patch.setattr("tests.logs.is_valid", lambda memory, stored: True)


def trust_every_hint(patch: Patch) -> None:
    """A hint is used whatever the stored head says."""
    patch.setattr("tests.logs.is_valid", lambda memory, stored: True)
    patch.setattr(Stream, "is_memory", property(lambda self: True))


MISDELIVERED: list[Callable[[Patch], None]] = [
    lose_pending_sessions,
    lose_changes_since_the_commit,
    lose_covered,
    lose_keys_covered_since_the_copy,
    lose_remembered_ids,
    lose_ids,
    lose_closed_keys,
    send_one_fragment_twice,
    send_a_wrong_number_of_fragments,
    lose_parked,
    lose_w,
    lose_a,
    lose_silence,
    lose_the_lowest_time,
    keep_memory_after_an_unknown_commit,
    trust_every_hint,
]
"""Faults that show in the delivered sessions, or break an owner."""
DIFFERENT: list[Callable[[Patch], None]] = [
    lose_pending_sessions,
    lose_changes_since_the_commit,
    lose_unparked,
    lose_counts,
    lose_covered,
    lose_keys_covered_by_silence,
    lose_remembered_ids,
    lose_ids,
    lose_closed_keys,
    lose_parked,
    lose_pin,
    lose_pin_w,
    lose_pin_a,
    lose_w,
    lose_a,
    lose_the_lowest_time,
    keep_the_order_of_the_copy,
    lose_bytes_read,
]
"""Faults that show in the stream that arrives."""


@pytest.mark.parametrize("plant", MISDELIVERED, ids=lambda plant: plant.__name__)
def test_what_gets_lost_in_transit_shows_in_the_sessions(
    plant: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    """Sooner or later, owners that continue from such memory deliver other sessions than the eager fold."""
    plant(monkeypatch)

    assert _is_found(difference)


@pytest.mark.parametrize("plant", DIFFERENT, ids=lambda plant: plant.__name__)
def test_what_gets_lost_in_transit_shows_on_arrival(
    plant: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    """The stream that arrives differs from the one sent."""
    plant(monkeypatch)

    assert _is_found(lost_in_transit)


def _is_found(shows: Callable[[int], Any]) -> bool:
    for seed in range(FAULT_SEEDS):
        try:
            if shows(seed):
                return True
        except Exception:  # a broken stream may also raise InvariantBroken or BundleRejected
            return True
    return False
