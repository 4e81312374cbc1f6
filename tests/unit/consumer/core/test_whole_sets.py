"""Which records a commit writes, and that a whole set rides on as many commits as it needs."""

from __future__ import annotations

import itertools
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.consumer.core import slices
from services.consumer.core.commits import writer as writing
from services.consumer.core.commits.checkpoint import Checkpoint, folding_records, new_stream
from services.consumer.core.commits.checkpoint_format import (
    CheckpointRecord,
    CoveredWire,
    ParkedWire,
    decode_record,
    encode_record,
    size_of_covered,
    size_of_session,
)
from services.consumer.core.commits.chunks import grouped, size_of_part
from services.consumer.core.commits.commit import Commit
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.commits.writer import CheckpointWriter
from services.consumer.core.large_dict import LargeDict
from services.consumer.core.sessions.assembly import Assembler
from services.consumer.core.sessions.covered import CoveredKeys
from services.consumer.core.sessions.state import Covered, OpenSession
from services.consumer.core.slices import at_once
from shared.model.group import GroupSettings
from shared.model.head import Head
from tests.logs import commit_of
from tests.reference import Rec

RECORD_BYTES = 600
HEAD = Head(epoch=1, seq=1, position=1_000, safe_offset=0, checkpoint_from=0, newest=0)


@given(sizes=st.lists(st.integers(0, 400), max_size=30), room=st.integers(50, 900))
def test_parts_are_grouped_in_order_as_closely_as_records_allow(sizes: list[int], room: int) -> None:
    """A group exceeds the room only by a single part, and the next part would not have fitted."""
    parts = [CoveredWire("k" * size, n, 0) for n, size in enumerate(sizes)]

    groups = list(grouped(parts, room))

    assert [part for group in groups for part in group] == parts
    for group in groups:
        assert len(group) == 1 or sum(map(size_of_part, group)) <= room
    for group, after in itertools.pairwise(groups):
        assert sum(map(size_of_part, group)) + size_of_part(after[0]) > room


@pytest.fixture
def small_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of some ten keys, and a whole set as soon as anything was written."""
    monkeypatch.setattr(writing, "MAX_CHUNK_BYTES", RECORD_BYTES)
    monkeypatch.setattr(writing, "MIN_WHOLE_BYTES", 0)


def state_with(keys: int) -> Assembler:
    """A stream of covered keys without open sessions."""
    state = Assembler(GroupSettings(), position=1_000, w=-1, a=0)
    state.covered = CoveredKeys(0, LargeDict((f"k{n:03}", Covered(offset=n)) for n in range(keys)))
    return state


def write(writer: CheckpointWriter, state: Assembler) -> Commit:
    """A commit without changes of its own."""
    return at_once(writer.committing(HEAD, [], state, {}, []))


@pytest.mark.usefixtures("small_records")
def test_a_large_whole_set_rides_on_several_commits() -> None:
    """Each carries about two records of it; together they hold every key once, and their size is known."""
    state = state_with(100)
    writer = CheckpointWriter(Checkpoint(head=HEAD, bytes=1))
    writer.remaining = deque(state.covered.entries)
    commits = [write(writer, state)]
    offset = 0
    while not commits[-1].ends:
        writer.committed(commits[-1], [*range(offset, offset + len(commits[-1].records))])
        offset += len(commits[-1].records)
        commits.append(write(writer, state))
    writer.committed(commits[-1], [offset])

    records = [decode_record(raw) for commit in commits for raw in commit.records]
    wires = [wire for record in records for wire in record.covered]
    assert [wire.key for wire in wires] == list(state.covered.entries)
    assert [record.ends for record in records] == [False] * (len(records) - 1) + [True]
    assert len(commits) == -(-sum(map(size_of_part, wires)) // (2 * RECORD_BYTES))
    assert writer.last_whole == sum(map(size_of_part, wires))


@pytest.mark.usefixtures("small_records")
def test_looking_at_open_sessions_is_work_too() -> None:
    """Sessions that are not parked write nothing, but a commit looks at a bounded number of them."""
    state = state_with(0)
    for n in range(100):
        state.open.add(OpenSession(f"k{n}", n, 0, 0, 0, 0))
    writer = CheckpointWriter(Checkpoint(head=HEAD))
    writer.remaining = deque()
    writer._remaining_open = deque(state.open.unordered_keys())
    commits = [write(writer, state)]
    while not commits[-1].ends:
        commits.append(write(writer, state))

    assert len(commits) == -(-100 * writing.LOOK_BYTES // (2 * RECORD_BYTES))


@pytest.mark.usefixtures("small_records")
def test_a_whole_set_ends_even_if_nothing_of_it_is_left() -> None:
    """The keys that were still to be written may be gone; a record must say that the set is complete."""
    writer = CheckpointWriter(Checkpoint(head=HEAD))
    writer.remaining = deque(["gone"])

    commit = write(writer, state_with(0))

    assert commit.ends
    assert [decode_record(raw).ends for raw in commit.records] == [True]


@pytest.mark.usefixtures("small_records")
def test_no_whole_set_begins_without_a_change() -> None:
    """It may be due, but an idle stream writes nothing."""
    writer = CheckpointWriter(Checkpoint(head=HEAD, bytes=10_000))

    commit = write(writer, state_with(3))

    assert (commit.begins, commit.records) == (None, [])


@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_a_checkpoint_is_the_same_however_it_is_sliced(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several records fold to all their keys and sessions, in order, and what follows the head is ignored."""
    monkeypatch.setattr(slices, "SLICE", size)
    head = Head(epoch=1, seq=1, position=100, safe_offset=0, checkpoint_from=4, newest=6)
    stored = [
        encode_record(
            CheckpointRecord(
                head=head,
                begins=number == 0,
                ends=number == 2,
                covered=[CoveredWire(f"c{n}", n * 7 % 20, 0) for n in range(number, 20, 3)],
                parked=[
                    ParkedWire(f"p{n}", n, 40 + n * 3 % 10, 0, 0, 0, 0, 0, [], 0, [b"{}" * n], 0)
                    for n in range(number, 10, 3)
                ],
            )
        )
        for number in range(3)
    ]

    found = at_once(folding_records(head, [*enumerate(stored, start=4), (7, b"of a later commit")], 60_000))

    assert list(found.covered) == sorted((f"c{n}" for n in range(20)), key=lambda key: int(key[1:]) * 7 % 20)
    assert list(found.parked) == sorted((f"p{n}" for n in range(10)), key=lambda key: int(key[1:]) * 3 % 10)
    assert found.bytes == sum(map(len, stored))
    assert found.parked_bytes == sum(2 * n for n in range(10))
    assert found.whole_bytes == sum(map(size_of_session, found.parked.values())) + sum(
        size_of_covered(key, entry) for key, entry in found.covered.items()
    )


def test_every_commit_keeps_the_number_of_the_log() -> None:
    """It distinguishes the sessions of a log that was started over."""
    head = Head(epoch=1, seq=1, position=0, safe_offset=0, log=52)
    stream = Stream(
        group="g",
        stream=0,
        epoch=2,
        settings=GroupSettings(),
        limits=StreamLimits(),
        checkpoint=Checkpoint(head=head),
        now_s=0.0,
    )
    stream.fold([Rec(0, 1_000, b"k", b'{"key":"k","end":true}')], 0.0)

    assert commit_of(stream).head.log == 52
    assert new_stream(52).head.log == 52
