"""The properties of bundles bite: whatever is lost on the way, some random log shows it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from services.consumer.core.commits import checkpoint
from services.consumer.core.commits.stream import Stream
from services.consumer.core.handover import bundle
from services.consumer.core.handover import bundle_format as bundle_wire
from services.consumer.core.handover.bundle import Copy
from services.consumer.core.handover.bundle_format import BundleWire, SessionWire
from services.consumer.core.sessions.assembly import Assembler
from services.consumer.core.sessions.state import OpenSession
from shared.model.head import Counts
from tests.logs import difference
from tests.unit.consumer.test_bundle import lost_on_the_way

FAULT_SEEDS = 2_000
"""Every planted fault must show within so many random logs."""

Patch = pytest.MonkeyPatch


def change_sessions(patch: Patch, **changes: Callable[[SessionWire], Any]) -> None:
    """Every session travels with these fields changed."""
    wire = bundle_wire.session_wire

    def wrong(*args: Any) -> SessionWire:
        sent = wire(*args)
        return msgspec.structs.replace(sent, **{name: change(sent) for name, change in changes.items()})

    patch.setattr(bundle, "session_wire", wrong)


def change_bundles(patch: Patch, **changes: Callable[[BundleWire], Any]) -> None:
    """Every bundle travels with these fields changed."""
    encode = bundle_wire.encode_bundle

    def wrong(sent: BundleWire) -> bytes:
        return encode(
            msgspec.structs.replace(sent, **{name: change(sent) for name, change in changes.items()})
        )

    patch.setattr(bundle, "encode_bundle", wrong)


def adopt_with(patch: Patch, **changes: Any) -> None:
    """The recipient takes something else over than it was sent."""
    adopt = Assembler.adopt
    patch.setattr(Assembler, "adopt", lambda self, **kw: adopt(self, **(kw | changes)))


def take_over_with(patch: Patch, **changes: Any) -> None:
    """The recipient takes other uncommitted things over than it was sent."""
    take_over = Stream.take_over
    patch.setattr(Stream, "take_over", lambda self, **kw: take_over(self, **(kw | changes)))


def change_tails(patch: Patch, **changes: Any) -> None:
    """Every delta's tail travels with these fields changed."""

    def change(sent: BundleWire) -> Any:
        return msgspec.structs.replace(sent.tail, **changes) if sent.tail is not None else None

    change_bundles(patch, tail=change)


def forget_what_waits_for_its_commit(patch: Patch) -> None:
    """Closed sessions that were not committed stay behind."""
    take_over_with(patch, pending=[])


def forget_what_was_covered_since_the_commit(patch: Patch) -> None:
    """The next commit does not write what the donor covered after its last one."""
    change_tails(patch, changed=[], unparked=[])


def forget_what_was_unparked(patch: Patch) -> None:
    """That a closed session stands in the checkpoint as parked stays behind."""
    change_tails(patch, unparked=[])


def forget_the_totals(patch: Patch) -> None:
    """The recipient counts from the head, not from the position."""
    take_over_with(patch, counts=Counts())


def forget_covered(patch: Patch) -> None:
    """The covered keys stay behind."""
    change_bundles(patch, covered=lambda sent: [])


def forget_what_was_covered_since_the_copy(patch: Patch) -> None:
    """The delta has no covered keys."""
    change_bundles(patch, covered=lambda sent: [] if sent.tail else sent.covered)


def forget_what_silence_covered(patch: Patch) -> None:
    """What changed since the copy is thought to begin at its position: silence covers one below it."""
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


def forget_remembered_ids(patch: Patch) -> None:
    """Covered keys come without the ids that they remember."""
    wire = checkpoint.covered_wire
    patch.setattr(
        bundle, "covered_wire", lambda key, entry: msgspec.structs.replace(wire(key, entry), ids=[])
    )


def forget_ids(patch: Patch) -> None:
    """Open sessions come without their ids."""
    change_sessions(patch, ids=lambda sent: [], ids_from=lambda sent: 0)


def forget_closed_keys(patch: Patch) -> None:
    """What closed since the copy stays open at the recipient."""
    change_bundles(patch, closed=lambda sent: [])


def send_one_fragment_twice(patch: Patch) -> None:
    """The delta begins one fragment too early."""
    change_sessions(patch, data=lambda sent: sent.data if sent.data_from == 0 else [b"{}", *sent.data])


def say_a_wrong_number_of_fragments(patch: Patch) -> None:
    """The delta says that it begins elsewhere."""
    change_sessions(patch, data_from=lambda sent: sent.data_from + (sent.data_from > 0))


def forget_parked(patch: Patch) -> None:
    """Nothing is thought to stand in the checkpoint: what is parked there is not taken out when it closes."""
    change_sessions(patch, parked=lambda sent: 0, pin=lambda sent: max(sent.pin, sent.first_offset))


def forget_pin(patch: Patch) -> None:
    """A session pins where it began, though part of it is parked."""
    change_sessions(patch, pin=lambda sent: sent.pin if sent.pin < 0 else sent.first_offset)


def forget_pin_w(patch: Patch) -> None:
    """W before the pin is lost, so a later replay begins with a wrong one."""
    change_sessions(patch, pin_w=lambda sent: -1)


def forget_pin_a(patch: Patch) -> None:
    """A before the pin is lost, so a later replay begins with a wrong one."""
    change_sessions(patch, pin_a=lambda sent: -1)


def forget_w(patch: Patch) -> None:
    """W stays behind."""
    adopt_with(patch, w=-1)


def forget_a(patch: Patch) -> None:
    """A stays behind."""
    adopt_with(patch, a=-1)


def forget_the_w_of_sessions(patch: Patch) -> None:
    """Every session's last fragment is thought to have come just now."""
    change_sessions(patch, w=lambda sent: 10**12, last_a=lambda sent: 10**12)


def forget_the_span(patch: Patch) -> None:
    """A session's lowest time is lost."""
    change_sessions(patch, low_t=lambda sent: sent.last_t)


def keep_the_order_of_arrival(patch: Patch) -> None:
    """Sessions stay in the order of the copy, so silence would be noticed for some only."""

    class Unmoved(OrderedDict[str, OpenSession]):
        def move_to_end(self, key: str, last: bool = True) -> None:
            pass

    patch.setattr(bundle, "Copy", lambda **given: Copy(sessions=Unmoved(), **given))


def forget_what_was_read(patch: Patch) -> None:
    """How much had been read, and where, stays behind."""
    take_over_with(patch, bytes_read=0, read_at=[(0, 0)])


def keep_memory_after_an_unknown_commit(patch: Patch) -> None:
    """A commit that may have been done is thought not to have been."""
    patch.setattr(Stream, "is_memory", property(lambda self: not self.assembler.is_replaying))
    patch.setattr("tests.logs.is_valid", lambda memory, stored: True)


def judge_no_hint(patch: Patch) -> None:
    """A hint is used whatever the stored head says."""
    patch.setattr("tests.logs.is_valid", lambda memory, stored: True)
    patch.setattr(Stream, "is_memory", property(lambda self: True))


MISDELIVERED: list[Callable[[Patch], None]] = [
    forget_what_waits_for_its_commit,
    forget_what_was_covered_since_the_commit,
    forget_covered,
    forget_what_was_covered_since_the_copy,
    forget_remembered_ids,
    forget_ids,
    forget_closed_keys,
    send_one_fragment_twice,
    say_a_wrong_number_of_fragments,
    forget_parked,
    forget_w,
    forget_a,
    forget_the_w_of_sessions,
    forget_the_span,
    keep_memory_after_an_unknown_commit,
    judge_no_hint,
]
"""What shows in the sessions that are delivered, or breaks an owner."""
DIFFERENT: list[Callable[[Patch], None]] = [
    forget_what_waits_for_its_commit,
    forget_what_was_covered_since_the_commit,
    forget_what_was_unparked,
    forget_the_totals,
    forget_covered,
    forget_what_silence_covered,
    forget_remembered_ids,
    forget_ids,
    forget_closed_keys,
    forget_parked,
    forget_pin,
    forget_pin_w,
    forget_pin_a,
    forget_w,
    forget_a,
    forget_the_span,
    keep_the_order_of_arrival,
    forget_what_was_read,
]
"""What shows in the stream that arrives."""


@pytest.mark.parametrize("plant", MISDELIVERED, ids=lambda plant: plant.__name__)
def test_what_is_lost_on_the_way_shows_in_the_sessions(
    plant: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    """Owners that take over from such memory deliver other sessions than the eager fold, sooner or later."""
    plant(monkeypatch)

    assert _is_found(difference)


@pytest.mark.parametrize("plant", DIFFERENT, ids=lambda plant: plant.__name__)
def test_what_is_lost_on_the_way_shows_on_arrival(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """The stream that arrives is not the one that was given."""
    plant(monkeypatch)

    assert _is_found(lost_on_the_way)


def _is_found(shows: Callable[[int], Any]) -> bool:
    for seed in range(FAULT_SEEDS):
        try:
            if shows(seed):
                return True
        except Exception:  # a stream that was broken may also end in an InvariantBroken or a BundleRejected
            return True
    return False
