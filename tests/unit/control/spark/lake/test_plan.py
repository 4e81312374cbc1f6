"""What the lake reads next: every offset once, whatever the table, the topic and a kill do in between."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.spark.lake.maintain import Part, partitions_to_compact
from services.control.spark.lake.plan import (
    BATCH_BYTES,
    FEWEST_RECORDS,
    FIRST_RECORDS,
    MOST_RECORDS,
    Batch,
    Held,
    LostRecords,
    Note,
    Topic,
    carries_on,
    changes_rows,
    note_of,
    plan_batch,
    read_note,
    records_for,
    with_counts,
)

EMPTY = Note(group="g")
_ends = st.dictionaries(st.integers(0, 5), st.integers(0, 400), min_size=1, max_size=4)


def _topic(end: dict[int, int], start: dict[int, int] | None = None, name: str = "T") -> Topic:
    return Topic(id=name, start=dict.fromkeys(end, 0) | (start or {}), end=end)


def _plan(note: Note, topic: Topic, **options: Any) -> Batch | None:
    usual: dict[str, Any] = {"records": 100, "delivers_once": True}
    return plan_batch(note, topic, **usual | options)


@given(_ends, st.integers(1, 150), st.data())
def test_batches_read_each_offset_once_in_order(
    ends: dict[int, int], records: int, data: st.DataObject
) -> None:
    """Up to the ends, also when a batch dies before its commit; all partitions go on together."""
    note, seen = EMPTY, dict.fromkeys(ends, 0)
    topic = _topic(ends)
    while (batch := _plan(note, topic, records=records)) is not None:
        assert sum(end - first for first, end in batch.ranges.values()) <= records + len(ends)
        if data.draw(st.booleans(), "killed") and data.draw(st.booleans(), "again"):
            continue
        for partition, (first, end) in batch.ranges.items():
            assert first == seen[partition] < end
            seen[partition] = end
        note = read_note(batch.note.encode(), "g") or EMPTY
        assert note == batch.note
    assert seen == ends
    assert note.topics in ({}, {"T": ends})


@pytest.mark.parametrize(
    ("at", "start", "end", "loss"),
    [
        (5, 5, 9, None),
        (5, 0, 5, None),
        (5, 9, 9, "4 offsets of partition 0 of the sessions topic, 5 up to 9, were deleted"),
        (5, 7, 9, "2 offsets of partition 0 of the sessions topic, 5 up to 7, were deleted"),
        (9, 0, 4, "partition 0 of the sessions topic ends at offset 4, but the lake has read it up to 9"),
    ],
)
def test_a_loss_stops_the_run_until_it_is_accepted(at: int, start: int, end: int, loss: str | None) -> None:
    """Offsets that are gone, and a topic that ends too early, are losses; accepted, they are noted."""
    note, topic = Note(group="g", topics={"T": {0: at}}), _topic({0: end}, {0: start})
    if loss is None:
        _plan(note, topic)
        return

    with pytest.raises(LostRecords, match=loss):
        _plan(note, topic)
    batch = _plan(note, topic, accept_loss=True)

    assert batch is not None
    assert batch.skipped == max(start - at, 0)
    assert batch.ranges == ({0: (start, end)} if start < end else {})
    # where the topic has gone back, what comes may be in the table already
    assert batch.comparison == ("all" if at > end else "none")
    assert _plan(batch.note, topic) is None


def test_a_topic_that_begins_above_0_when_it_is_first_read_is_said_to_have_lost_records() -> None:
    """Nobody can have read what is gone, so the run continues; later runs have a note of the topic."""
    for note in (EMPTY, Note(group="g", topics={"S": {0: 4}})):
        batch = _plan(note, _topic({0: 90, 1: 5}, {0: 70}))

        assert batch is not None
        assert (batch.skipped, batch.ranges) == (70, {0: (70, 90), 1: (0, 5)})
        (loss,) = batch.losses
        assert "70 offsets of partition 0 of the sessions topic, 0 up to 70, were deleted before" in loss
        assert _plan(batch.note, _topic({0: 90, 1: 5}, {0: 80})) is None


@pytest.mark.parametrize(
    ("first", "delivery", "is_lost"), [(4, {}, False), (5, {}, True), (4, {"delivers_once": False}, True)]
)
def test_the_marker_behind_the_newest_row_is_no_loss(
    first: int, delivery: dict[str, bool], is_lost: bool
) -> None:
    """Rows do not show it, and retention may remove all up to it. A further offset may be a session."""
    held = Held(topic_id="T", topic_partition=0, last_offset=2, sessions=3, fragments=3, bytes=9)
    topic = _topic({0: 5}, {0: first})

    if is_lost:
        with pytest.raises(LostRecords):
            _plan(note_of("g", [held]), topic, **delivery)
    else:
        batch = _plan(note_of("g", [held]), topic, **delivery)
        assert batch is not None
        assert batch.ranges == {0: (4, 5)}


def test_a_note_is_renewed_though_nothing_is_to_be_read() -> None:
    """It notes the same again; what may repeat stays as it was."""
    note = Note(group="g", topics={"T": {0: 4}}, sessions=3, unsure=True)

    batch = _plan(note, _topic({0: 4}), renew=True)

    assert batch is not None
    assert (batch.ranges, batch.skipped, batch.losses) == ({}, 0, [])
    assert batch.note == msgspec.structs.replace(note, unsure=False, compare_below={0: 4})
    assert _plan(batch.note, _topic({0: 4})) is None


def test_records_are_compared_only_where_they_may_repeat() -> None:
    """By delivery, another topic's sessions, and after rows had to say how far the table is."""
    topic = _topic({0: 10})
    held = Held(topic_id="T", topic_partition=0, last_offset=3, sessions=2, fragments=5, bytes=50)
    old = Held(topic_id=None, topic_partition=None, last_offset=None, sessions=1, fragments=1, bytes=1)

    def comparison(note: Note, **options: Any) -> str:
        batch = _plan(note, topic, **options)
        assert batch is not None
        return batch.comparison

    assert comparison(EMPTY) == "none"
    assert comparison(EMPTY, delivers_once=False) == "all"
    assert comparison(Note(group="g", topics={"S": {0: 4}})) == "others"
    assert comparison(Note(group="g", mixed=True)) == "others"
    assert comparison(note_of("g", [])) == "none"
    rebuilt = note_of("g", [held, old])
    assert (rebuilt.topics, rebuilt.mixed, rebuilt.sessions, rebuilt.bytes) == ({"T": {0: 4}}, True, 3, 51)
    first = _plan(rebuilt, topic, records=2)
    assert first is not None
    assert (first.ranges, first.comparison, first.note.compare_below) == ({0: (4, 6)}, "all", {0: 10})
    # still below the end that the topic had when the rows were asked
    assert comparison(first.note) == "all"
    grown = _plan(Note(group="g", topics={"T": {0: 10}}, compare_below={0: 10}), _topic({0: 12}))
    assert grown is not None
    assert grown.comparison == "none"


def test_a_note_is_read_only_by_its_group() -> None:
    """Other texts, and other groups' notes, say nothing; a table set back or made anew ends the search.

    Whatever others do to the rows does not end it, but the rows have to be counted again.
    """
    text = with_counts(Note(group="g", topics={"T": {0: 4}}), 1, 2, 3, {}).encode()

    assert read_note(text, "g") == Note(group="g", topics={"T": {0: 4}}, sessions=1, fragments=2, bytes=3)
    assert [read_note(one, "g") for one in (None, "", "by hand", "{}", text.replace('"g"', '"h"'))] == [
        None
    ] * 5
    edits = ("DELETE", "UPDATE", "MERGE", "WRITE", "")
    assert all(carries_on(one) and changes_rows(one, None) for one in edits)
    assert carries_on("OPTIMIZE")
    assert not changes_rows("OPTIMIZE", None)
    assert not changes_rows("WRITE", text.replace('"g"', '"h"'))
    beginnings = ("RESTORE", "CLONE", "CREATE TABLE", "REPLACE TABLE", "CREATE OR REPLACE TABLE AS SELECT")
    assert not any(map(carries_on, beginnings))


def test_batches_grow_with_small_sessions_and_shrink_with_large_ones() -> None:
    """About as many bytes each, within bounds."""
    assert records_for(0, 0) == FIRST_RECORDS
    assert records_for(1000, BATCH_BYTES) == FEWEST_RECORDS
    assert records_for(10, 10 * 2_000_000) == FEWEST_RECORDS
    assert records_for(50_000, 50_000 * 10_000) == BATCH_BYTES // 10_000
    assert records_for(50_000, 50_000) == MOST_RECORDS


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40))
def test_a_compacted_partition_is_left_alone(sizes: list[int]) -> None:
    """As many files as its size needs are never compacted again; a second small file is."""
    total, wanted = sum(sizes), 100
    compacted = Part({"day": "d"}, max(1, round(total / wanted)), total)

    assert partitions_to_compact([compacted], wanted) == []
    small = Part({"day": "d"}, 2, wanted // 4)
    assert partitions_to_compact([small], wanted) == [small]
