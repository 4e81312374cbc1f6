"""By its last record a stream recognizes its log: what is compared, when, and what is admitted."""

from __future__ import annotations

import pytest

from services.consumer.core.commits.checkpoint import Checkpoint
from services.consumer.core.commits.last_record import Comparison, LastRecord, LogChanged, LogLost
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from shared.model.group import GroupSettings
from shared.model.head import Head
from tests.logs import fragment, owner_of
from tests.reference import Rec


def log(first: int, end: int, *, hour: int = 0) -> list[Rec]:
    """The records `first` … `end` - 1, one a minute."""
    return [Rec(n, 3600 * hour + 60 * n, b"k", b"{}") for n in range(first, end)]


@pytest.mark.parametrize(
    ("records", "comparison", "admitted"),
    [
        (log(4, 5), "same", []),
        (log(4, 8), "same", [5, 6, 7]),
        (log(0, 8), "same", [5, 6, 7]),
        (log(5, 8), "gone", [5, 6, 7]),
        (log(7, 8), "gone", [7]),
        ([*log(2, 4), *log(6, 8)], "gone", [6, 7]),
        (log(2, 4), "pending", []),
        ([], "pending", []),
    ],
)
def test_the_last_record_is_compared_when_it_comes(
    records: list[Rec], comparison: Comparison, admitted: list[int]
) -> None:
    """Whatever is read before it is dropped with it. Without it, retention has removed it."""
    last = LastRecord(4, 240)

    found = last.admit(records, 5, 5)

    assert [record.offset for record in found] == admitted
    assert last.comparison == comparison


def test_another_record_in_its_place_is_another_log() -> None:
    """What was committed is lost; what was only read is read anew."""
    with pytest.raises(LogLost, match="record at 4 was appended at 3840, not at 240"):
        LastRecord(4, 240).admit(log(4, 8, hour=1), 5, 5)
    with pytest.raises(LogChanged, match="record at 4 was appended at 3840, not at 240"):
        LastRecord(4, 240).admit(log(4, 8, hour=1), 5, 4)


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        ([*log(4, 5), *log(5, 8, hour=1)], "record at 5 was appended at 3900, not at 300"),
        (log(5, 8, hour=1), "record at 5 was appended at 3900, not at 300"),
        (log(4, 8, hour=1), "record at 4 was appended at 3840, not at 240"),
        (log(2, 8), ""),
        (log(5, 8), ""),
        (log(6, 8, hour=1), ""),
        (log(2, 5), ""),
    ],
)
def test_a_record_that_was_folded_in_part_is_compared_too(records: list[Rec], fault: str) -> None:
    """It is at the position, behind the last one; retention may have removed both."""
    last = LastRecord(4, 240, 300)

    if fault:
        with pytest.raises(LogLost, match=fault):
            last.admit(records, 5, 6)
        with pytest.raises(LogLost if "at 4" in fault else LogChanged, match=fault):
            last.admit(records, 5, 5)
    else:
        assert last.admit(records, 5, 6) == [record for record in records if record.offset >= 5]


def test_a_record_is_in_part_until_it_is_folded_to_its_end() -> None:
    """Only then a reader needs nothing but the last one."""
    last = LastRecord(4, 240)
    assert (last.known_end, last.closing_behind(5), repr(last)) == (
        5,
        -1,
        "<LastRecord at 4, appended 240, pending>",
    )

    last.note_part(log(5, 6)[0])
    assert (last.known_end, last.closing_behind(5), last.closing_behind(4)) == (6, 300, -1)
    assert (last.first_to_read(5), last.appended_before(5)) == (4, 240)
    assert repr(last) == "<LastRecord at 4, appended 240, pending, 5 in part>"

    last.note_read(log(4, 5)[0])
    assert last.closing_behind(5) == 300
    last.note_read(log(5, 6)[0])
    assert (last.known_end, last.closing_behind(5), last.closing_behind(6)) == (6, -1, -1)
    assert last.appended_before(6) == 300


def test_a_head_without_the_append_time_is_not_compared() -> None:
    """Versions before this one did not store it. It is learnt, so that the next commit does."""
    last = LastRecord(4, -1)

    last.admit(log(4, 5), 5, 5)

    assert (last.comparison, last.appended_before(5)) == ("unknown", 240)


def test_a_replay_compares_when_it_has_come_as_far_as_before() -> None:
    """It begins at the safe offset, below the last record, which it must not take for the newest."""
    last = LastRecord(4, 240)
    assert last.first_to_read(1) == 1
    assert LastRecord(0, 0).first_to_read(1) == 0

    for position in (1, 3):
        records = last.admit(log(position, position + 2), position, 5)
        last.note_read(records[-1])

    assert (last.comparison, last.offset) == ("same", 4)
    with pytest.raises(LogLost):
        LastRecord(4, 240).admit(log(3, 5, hour=1), 3, 5)


def test_the_newest_record_that_was_folded_is_the_last_one() -> None:
    """Its append time is known only for the position right behind it."""
    last = LastRecord(-1, -1)
    assert (last.first_to_read(0), last.appended_before(0)) == (0, -1)

    last.note_read(log(0, 3)[-1])

    assert (last.first_to_read(3), last.appended_before(3), last.appended_before(2)) == (2, 120, -1)


def test_a_log_that_begins_above_it_has_lost_it() -> None:
    """Then nothing is compared, and reading begins at the position."""
    last = LastRecord(4, 240)
    last.note_log_start(4)
    assert last.comparison == "pending"

    last.note_log_start(5)

    assert (last.comparison, last.first_to_read(5), last.appended_before(5)) == ("gone", 5, -1)


def test_the_first_record_of_a_log_can_be_removed_too() -> None:
    """Offset 0 is as good as any other."""
    last = LastRecord(0, 60)

    last.note_log_start(1)

    assert (last.comparison, last.offset) == ("gone", -1)


def test_a_stream_knows_what_it_has_committed() -> None:
    """A record below the stored position is lost; above it, what was read is only read anew."""
    owner = owner_of(fragment(0, "k"))
    owner.commit()
    owner.stream.resume(2, 0.0)
    with pytest.raises(LogLost):
        owner.stream.admit([Rec(0, 5, b"k", b"{}")])

    owner.stream.fold([fragment(1, "k")], 0.0)
    owner.stream.last_record.expect()
    with pytest.raises(LogChanged):
        owner.stream.admit([Rec(1, 5, b"k", b"{}")])


def test_a_stream_remembers_the_last_record_that_it_has_folded() -> None:
    """From its head, and after each turn; what it had no room for does not count."""
    head = Head(epoch=1, seq=1, position=100, safe_offset=100, w=0, a=0, appended=7)
    stream = Stream(
        group="g",
        stream=0,
        epoch=1,
        settings=GroupSettings(),
        limits=StreamLimits(),
        checkpoint=Checkpoint(head=head),
        now_s=0.0,
    )
    last = stream.last_record
    known = [(last.offset, last.appended)]
    stream.fold(log(100, 103), 0.0)
    known.append((last.offset, last.appended))
    stream.assembler.room = 0
    left = stream.fold(log(103, 106), 0.0)
    known.append((last.offset, last.appended))

    assert known == [(99, 7), (102, 60 * 102), (102, 60 * 102)]
    assert [record.offset for record in left] == [103, 104, 105]


@pytest.mark.parametrize(("offset", "comparison"), [(-1, "unknown"), (0, "pending"), (1, "pending")])
def test_the_first_record_of_a_log_is_compared_too(offset: int, comparison: Comparison) -> None:
    """Only a stream that has read nothing has nothing to compare."""
    assert LastRecord(offset, 5).comparison == comparison
