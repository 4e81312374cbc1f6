"""Bundles: a recipient rebuilds the donor's stream from copy and delta, and rejects anything else."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.consumer.core.commits.checkpoint_format import covered_wire
from services.consumer.core.commits.read_marks import POINTS, ReadMarks
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.handover.bundle_format import BundleWire
from services.consumer.core.handover.received import opening_copy
from services.consumer.core.handover.sent import copying, taking_delta
from services.consumer.core.sessions.state import Covered, OpenSession, is_droppable
from services.consumer.core.slices import at_once
from shared.errors import BundleRejected, InvariantBroken
from tests.effort import effort
from tests.logs import SETTINGS, Owner, Store, fragment, owner_of, random_log, received
from tests.reference import Rec

SEEDS = effort(1_000)
LIMITS = StreamLimits(max_replay_fragments=4)
"""Low, so that parking is common."""

OLDER_TAIL = 11
"""Fields of a tail before it said when the last record was appended."""

HandedOver = tuple[bytes, bytes, Stream]
"""A first copy, the delta that extends it, and the donor's stream when it stopped."""


def handed_over(seed: int) -> HandedOver:
    """Several owners fold a random log; the last one copies the stream at some moment and stops it later."""
    rng = random.Random(seed)
    log = random_log(rng)
    owner = Owner(log[: rng.randrange(20, 50)], rng, Store(), LIMITS)
    while not owner.run():
        owner.succeed()
    body, sent = at_once(copying(owner.stream))
    owner.log = log[: len(owner.log) + rng.randrange(10)]
    while owner.stream.position < len(owner.log):
        at = owner.stream.position
        owner.stream.fold(owner.log[at : at + rng.choice([1, 3, 10])], 0.0)
        if rng.random() < 0.5:
            owner.stream.turn((), now_s=0.0, wall_ms=0, commit_s=None)
        if rng.random() < 0.3:
            owner.commit()
    if owner.stream.has_changes and rng.random() < 0.3:
        owner.commit()
    return body, at_once(taking_delta(owner.stream, sent)), owner.stream


def fields_of(session: OpenSession) -> dict[str, Any]:
    """The session's fields by name."""
    return {name: getattr(session, name) for name in session.__slots__} | {"ids": list(session.ids or ())}


def state_of(stream: Stream) -> dict[str, Any]:
    """Everything that a stream's next owner continues from."""
    state, head = stream.assembler, stream.head
    return {
        "head": head,
        "position": state.position,
        "w": state.w,
        "a": state.a,
        "open": [fields_of(one) for one in state.open.values()],
        "oldest": state.find_oldest(next(iter(state.pinned.values()), None)),
        "pinned": [(key, one.pin) for key, one in state.pinned.items()],
        "pending": [
            (fields_of(closed.session), closed.reason, closed.closed_at) for closed in stream.pending
        ],
        "changed": {key: (entry.offset, list(entry.ids)) for key, entry in state.covered.changed.items()},
        "unparked": state.covered.unparked,
        "covered": {
            key: (entry.offset, list(entry.ids.items()))
            for key, entry in state.covered.entries.items()
            if not is_droppable(entry, head.safe_offset, head.a, SETTINGS.repeat_ms)
        },
        "bytes": (state.state_bytes, state.bytes_read, state.room),
        "read_at": stream.read_marks.points(),
        "appended": stream.last_record.appended_before(stream.position),
        "closing": stream.last_record.closing_behind(stream.position),
        "counts": stream.counts,
        "writer": (stream.writer.written, stream.writer.last_whole),
        "stands": (stream.is_memory, stream.has_changes),
    }


def lost_in_transit(seed: int) -> list[str]:
    """The parts of a stream that differ after a handover, by copy and delta or by one whole bundle."""
    body, delta, donor = handed_over(seed)
    whole = received(None, at_once(taking_delta(donor, None)), LIMITS)
    found = received(at_once(opening_copy(body, "digest")), delta, LIMITS)
    return [
        part
        for part, value in state_of(donor).items()
        if value != state_of(found)[part] or value != state_of(whole)[part]
    ]


def test_a_stream_arrives_as_it_was_sent() -> None:
    """Open sessions in order, their pins and parked parts, covered keys, ids, W, A and counts all travel."""
    differences = {seed: parts for seed in range(SEEDS) if (parts := lost_in_transit(seed))}

    assert differences == {}


def test_a_donor_of_an_older_version_says_nothing_of_its_last_record() -> None:
    """Neither its head nor its tail has the append time. The stream arrives, and has nothing to compare."""
    donor = owner_of(fragment(0, "a"), fragment(1, "b")).stream
    raw = msgspec.msgpack.decode(at_once(taking_delta(donor, None)))
    raw["tail"] = raw["tail"][:OLDER_TAIL]
    del raw["tail"][0]["appended"], raw["tail"][0]["log"]

    found = received(None, msgspec.msgpack.encode(raw), LIMITS)

    assert state_of(found) == state_of(donor) | {"appended": -1}
    assert (found.reads_from, found.last_record.appended) == (1, -1)


def test_random_logs_contain_everything_that_can_get_lost() -> None:
    """Parked parts, remembered ids, sessions that closed, grew or opened after the copy are all common."""
    parts = ["parked", "partly parked", "ids", "closed", "grew", "opened", "covered later"]
    seen = dict.fromkeys([*parts, "pending", "unparked"], 0)
    for seed in range(300):
        body, delta, donor = handed_over(seed)
        before, after = (msgspec.msgpack.decode(raw, type=BundleWire) for raw in (body, delta))
        seen["parked"] += any(one.parked for one in donor.assembler.open.values())
        seen["partly parked"] += any(one.pin > one.first_offset for one in donor.assembler.open.values())
        seen["ids"] += any(entry.ids for entry in donor.assembler.covered.entries.values())
        seen["closed"] += bool(after.closed)
        seen["grew"] += any(one.data_from for one in after.sessions)
        seen["opened"] += any(one.first_offset >= before.position for one in after.sessions)
        seen["pending"] += bool(donor.pending)
        seen["unparked"] += bool(donor.assembler.covered.unparked)
        seen["covered later"] += bool(before.covered and after.covered)

    assert {part: count for part, count in seen.items() if count < 5} == {}


def test_a_delta_contains_only_what_has_changed() -> None:
    """A session that grew by one fragment sends one fragment; a session that did not grow sends nothing, and
    of the keys that ended long before the copy there is none.
    """
    ended = [Rec(n, 1000, b"k%d" % n, b'{"key":"k%d","end":true}' % n) for n in range(2, 5)]
    owner, later = owner_of(fragment(0, "big", 300), fragment(1, "still"), *ended), fragment(5, "big")
    owner.commit()
    body, sent = at_once(copying(owner.stream))
    owner.stream.fold([later], 0.0)
    owner.commit()

    wire = msgspec.msgpack.decode(at_once(taking_delta(owner.stream, sent)), type=BundleWire)

    assert at_once(opening_copy(body, sent.digest)).digest == sent.digest
    assert [(one.key, one.data_from, one.data) for one in wire.sessions] == [("big", 1, [later.value])]
    assert [one.key for one in wire.covered] == ["k4"]


def test_a_delta_is_taken_only_of_the_stream_that_was_copied() -> None:
    """A donor that reopened its stream after the copy may stand below it, which would duplicate records."""
    owner = owner_of(fragment(0, "k"), fragment(1, "k"))
    _, sent = at_once(copying(owner.stream))

    with pytest.raises(InvariantBroken):
        at_once(taking_delta(owner.load(), sent))


def test_an_empty_stream_can_be_handed_over() -> None:
    """A stream without any record moves like any other."""
    owner = owner_of()
    body, sent = at_once(copying(owner.stream))

    found = received(
        at_once(opening_copy(body, sent.digest)), at_once(taking_delta(owner.stream, sent)), LIMITS
    )

    assert state_of(found) == state_of(owner.stream)
    assert found.is_memory
    assert found.turn((), now_s=0.0, wall_ms=0, commit_s=1.0).effects == ()


@given(seed=st.integers(0, 300), cut=st.floats(0, 1, exclude_max=True))
def test_a_truncated_bundle_is_rejected(seed: int, cut: float) -> None:
    """No matter how much of its end is missing."""
    body, delta, _ = handed_over(seed)

    with pytest.raises(BundleRejected):
        at_once(opening_copy(body[: int(cut * len(body))], "digest"))
    with pytest.raises(BundleRejected):
        received(at_once(opening_copy(body, "digest")), delta[: int(cut * len(delta))], LIMITS)


@given(st.binary(max_size=200))
def test_garbage_is_rejected(body: bytes) -> None:
    """Any bytes raise BundleRejected, never another error."""
    with pytest.raises(BundleRejected):
        at_once(opening_copy(body, "digest"))
    with pytest.raises(BundleRejected):
        received(None, body, LIMITS)


@given(seed=st.integers(0, 300), flips=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1))
def test_changed_bytes_are_rejected_or_give_a_usable_stream(
    seed: int, flips: list[tuple[float, int]]
) -> None:
    """The digest detects them earlier, but no bytes may crash the member that reads them."""
    body, delta, donor = handed_over(seed)
    changed = bytearray(delta)
    for where, mask in flips:
        changed[int(where * (len(changed) - 1))] ^= mask

    try:
        found = received(at_once(opening_copy(body, "digest")), bytes(changed), LIMITS)
    except BundleRejected:
        return

    found.resume(donor.head.epoch + 1, 0.0)
    repr(found)
    state_of(found)


@pytest.mark.parametrize(
    "body",
    [b"\x81\xa8position\xa1\xff", b"\x82\xa3abc" + b"\x91" * 100_000, b"\x81\xa6closed\xdd\xff\xff\xff\xff"],
    ids=["no UTF-8", "nested without end", "a list without end"],
)
def test_bytes_that_break_a_careless_reader_are_rejected(body: bytes) -> None:
    """A reader that does not check for these raises some other error."""
    with pytest.raises(BundleRejected):
        at_once(opening_copy(body, "digest"))


def session_with(**changes: Any) -> Callable[[BundleWire], BundleWire]:
    """A change to the first session of a bundle."""

    def change(wire: BundleWire) -> BundleWire:
        first = msgspec.structs.replace(wire.sessions[0], **changes)
        return msgspec.structs.replace(wire, sessions=[first, *wire.sessions[1:]])

    return change


def last_session_with(**changes: Any) -> Callable[[BundleWire], BundleWire]:
    """A change to the last session of a bundle."""

    def change(wire: BundleWire) -> BundleWire:
        last = msgspec.structs.replace(wire.sessions[-1], **changes)
        return msgspec.structs.replace(wire, sessions=[*wire.sessions[:-1], last])

    return change


def head_with(**changes: Any) -> Callable[[BundleWire], BundleWire]:
    """A change to the head of a bundle."""

    def change(wire: BundleWire) -> BundleWire:
        assert wire.tail is not None
        return tail_with(head=msgspec.structs.replace(wire.tail.head, **changes))(wire)

    return change


def tail_with(**changes: Any) -> Callable[[BundleWire], BundleWire]:
    """A change to the tail of a bundle."""

    def change(wire: BundleWire) -> BundleWire:
        assert wire.tail is not None
        return msgspec.structs.replace(wire, tail=msgspec.structs.replace(wire.tail, **changes))

    return change


INCONSISTENT: dict[str, Callable[[BundleWire], BundleWire]] = {
    "no tail": lambda wire: msgspec.structs.replace(wire, tail=None),
    "another position than the head's": lambda wire: msgspec.structs.replace(wire, position=2),
    "nothing was read anywhere": tail_with(read_at=[]),
    "reading went back": tail_with(read_at=[(2, 50), (1, 40)]),
    "fragments are missing before": session_with(data_from=1),
    "ids are missing before": session_with(ids_from=1),
    "no fragments": session_with(data=[]),
    "no fragments, all parked": session_with(data=[], pin=-1),
    "more parked than there are": session_with(parked=7),
    "parked, and pinned": session_with(parked=2),
    "not parked, and not pinned": session_with(pin=-1),
    "pinned below the safe offset": session_with(pin=-2, parked=1),
    "pinned at the log's first record, below the safe offset": head_with(safe_offset=1),
    "a head whose safe offset is above its position": head_with(safe_offset=4),
    "ends before it begins": session_with(first_offset=2, last_offset=1),
    "ends above the position": session_with(last_offset=3),
    "the last one ends at the position": last_session_with(last_offset=3),
    "two end at the same record": last_session_with(first_offset=1, last_offset=1, pin=1),
    "times the wrong way round": session_with(low_t=10**9, last_t=0),
    "covered above the position": lambda wire: msgspec.structs.replace(
        wire, covered=[covered_wire("k", Covered(offset=3))]
    ),
}


@pytest.mark.parametrize("change", INCONSISTENT.values(), ids=INCONSISTENT.keys())
def test_an_inconsistent_bundle_is_rejected(change: Callable[[BundleWire], BundleWire]) -> None:
    """A member must not run a stream that cannot have this head."""
    owner = owner_of(fragment(0, "k"), fragment(1, "k"), fragment(2, "other"))
    owner.commit()
    whole = at_once(taking_delta(owner.stream, None))
    wire = msgspec.msgpack.decode(whole, type=BundleWire)
    received(None, msgspec.msgpack.encode(wire), LIMITS)

    with pytest.raises(BundleRejected):
        received(None, msgspec.msgpack.encode(change(wire)), LIMITS)


def test_a_delta_is_not_accepted_as_a_copy_nor_a_copy_as_a_delta() -> None:
    """Only a delta has a head."""
    body, delta, _ = handed_over(1)

    with pytest.raises(BundleRejected):
        at_once(opening_copy(delta, "digest"))
    with pytest.raises(BundleRejected):
        received(None, body, LIMITS)


def test_a_closed_key_that_the_copy_does_not_hold_changes_nothing() -> None:
    """Its session may have opened and closed between two slices of the copy."""
    owner = owner_of(fragment(0, "k"))
    body, sent = at_once(copying(owner.stream))
    delta = msgspec.msgpack.decode(at_once(taking_delta(owner.stream, sent)), type=BundleWire)
    delta = msgspec.structs.replace(delta, closed=["other"])

    found = received(at_once(opening_copy(body, sent.digest)), msgspec.msgpack.encode(delta), LIMITS)

    assert state_of(found) == state_of(owner.stream)


def test_a_delta_that_pins_an_offset_before_its_copy_is_rejected() -> None:
    """The safe offset is the first pin, so pins out of order would commit too high a one."""
    owner = owner_of(fragment(0, "a"), fragment(1, "b"))
    body, sent = at_once(copying(owner.stream))
    owner.stream.fold([fragment(2, "c")], 0.0)
    delta = msgspec.msgpack.decode(at_once(taking_delta(owner.stream, sent)), type=BundleWire)
    early = msgspec.structs.replace(delta.sessions[0], first_offset=0, pin=0)

    with pytest.raises(BundleRejected, match="pins an offset"):
        received(
            at_once(opening_copy(body, sent.digest)),
            msgspec.msgpack.encode(msgspec.structs.replace(delta, sessions=[early])),
            LIMITS,
        )


def test_few_marks_of_where_bytes_were_read_travel() -> None:
    """Evenly spread, the first among them."""
    marks = [(n, 10 * n) for n in range(1_000)]

    points = ReadMarks(marks).points()

    assert POINTS / 2 < len(points) <= POINTS + 1
    assert points[0] == marks[0]
    assert len({later[0] - earlier[0] for earlier, later in pairwise(points)}) == 1
