"""Decides which records of the sessions topic the lake reads next, and what each commit notes about that.

Pure. Every commit of the table `sessions` carries a note: up to which offset of which topic the table holds
the group's sessions. So the table is its own checkpoint, and the two cannot disagree. `plan_batch` compares
the newest note with the topic as it is now, and finds what was lost, what the table may already hold, and
what comes next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from services.control.spark.lake.sums import Spans, Sums
from shared.errors import Conflict

FIRST_RECORDS: Final = 200_000
"""Most offsets in a run's first batch, when the size of the sessions is not known yet."""
MOST_RECORDS: Final = 1_000_000
FEWEST_RECORDS: Final = 1_000
BATCH_BYTES: Final = 1 << 30
"""About how many bytes of records a batch reads. Larger commits cost less, but a kill repeats a whole one."""

Range = tuple[int, int]
"""The offsets from the first up to the second."""
Comparison = Literal["none", "others", "all"]
"""Which of the table's rows a batch may repeat: none, those that came from another topic, or any."""


class LostRecords(Conflict):
    """Kafka has lost records that the lake has not read."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit notes about its group.

    `number`: the commit's number among those of the group; None if it is not known.
    `topics`: by topic id and partition, the offset below which the table holds everything. `mixed`: the table
    also holds sessions that did not come from the current topic. `compare_below`: by partition, the offset
    below which the current topic may repeat what the table holds. `unsure`: it may do so up to the end that
    it has at the next plan. `sessions`, `fragments`, `bytes`: what the table holds of the group. `sums`: what
    the lake has written of it; None if the note is of an earlier version, or only the rows give it.
    """

    group: str
    number: int | None = None
    topics: dict[str, dict[int, int]] = {}
    mixed: bool = False
    compare_below: dict[int, int] = {}
    unsure: bool = False
    sessions: int = 0
    fragments: int = 0
    bytes: int = 0
    sums: Sums | None = None

    def encode(self) -> str:
        """The text that goes into the commit."""
        return msgspec.json.encode({"baton": self}).decode()


class _Envelope(msgspec.Struct, frozen=True):
    baton: Note


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions topic: its id in Kafka, and the first offset and settled end of each partition."""

    id: str
    start: dict[int, int]
    end: dict[int, int]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What to read: offsets by partition, and the note before the batch is counted.

    `skipped`: how many offsets are lost, and `losses` the same in words.
    """

    ranges: dict[int, Range]
    comparison: Comparison
    skipped: int
    losses: list[str]
    note: Note


class _Resumption(NamedTuple):
    """Where reading resumes, by partition, and the losses in words with their number of offsets.

    `below`: as `compare_below` of a note. `unread`: what the topic had lost before the lake first read it.
    """

    starts: dict[int, int]
    below: dict[int, int]
    skipped: int
    losses: list[str]
    unread: list[str]


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What the table holds of a group from one partition of one topic; None where its rows name neither."""

    topic_id: str | None
    topic_partition: int | None
    last_offset: int | None
    sessions: int
    fragments: int
    bytes: int


def parse_note(text: str | None) -> Note | None:
    """A commit's note about any group, or None if it has none."""
    try:
        return msgspec.json.decode(text or "", type=_Envelope).baton
    except msgspec.DecodeError:
        return None


def read_note(text: str | None, group: str) -> Note | None:
    """A commit's note, if it has one about this group."""
    note = parse_note(text)
    return note if note is not None and note.group == group else None


def note_of(group: str, held: list[Held]) -> Note:
    """The note derived from the rows themselves, for a table whose commits do not have it.

    Rows do not show where transactions ended, so an offset may be lower than the one that a commit notes.
    """
    topics: dict[str, dict[int, int]] = {}
    for one in held:
        if one.topic_id is not None and one.topic_partition is not None and one.last_offset is not None:
            topics.setdefault(one.topic_id, {})[one.topic_partition] = one.last_offset + 1
    return Note(
        group=group,
        topics=topics,
        mixed=any(one.topic_id is None for one in held),
        unsure=bool(held),
        sessions=sum(one.sessions for one in held),
        fragments=sum(one.fragments for one in held),
        bytes=sum(one.bytes for one in held),
    )


def plan_batch(
    note: Note,
    topic: Topic,
    *,
    records: int,
    delivers_once: bool,
    accept_loss: bool = False,
    renew: bool = False,
) -> Batch | None:
    """The next batch of at most about `records` offsets, or None at the topic's end.

    A batch without ranges only notes an accepted loss, or the same as before (`renew`).

    `delivers_once`: the topic holds each session once. Raises LostRecords, unless `accept_loss`: then reading
    continues at the first offset that is left.
    """
    starts, below, skipped, losses, unread = _resume(note, topic, has_markers=delivers_once)
    if losses and not accept_loss:
        raise LostRecords(
            f"{'; '.join(losses)}. To continue without them, run `baton run lake -p accept_loss=1`; "
            "docs/lake.md lists the alternatives"
        )
    ranges = _shares(starts, topic.end, records)
    if not ranges and not losses and not renew:
        return None
    mixed = note.mixed or any(other != topic.id for other in note.topics)
    repeats = any(first < below.get(partition, 0) for partition, (first, _) in ranges.items())
    comparison: Comparison = "others" if mixed else "none"
    if repeats or not delivers_once:
        comparison = "all"
    after = starts | {partition: end for partition, (_, end) in ranges.items()}
    return Batch(
        ranges=ranges,
        comparison=comparison,
        skipped=skipped,
        losses=losses + unread,
        note=msgspec.structs.replace(
            note, topics=note.topics | {topic.id: after}, mixed=mixed, compare_below=below, unsure=False
        ),
    )


def _resume(note: Note, topic: Topic, *, has_markers: bool) -> _Resumption:
    """Where reading resumes, as if every loss were accepted. `has_markers`: a marker ends each delivery."""
    reached = note.topics.get(topic.id, {})
    below = dict(note.compare_below) if topic.id in note.topics else {}
    if note.unsure:
        below = dict(topic.end)
    # rows do not show the marker behind the newest one
    hidden = 1 if has_markers and note.number is None else 0
    starts, skipped, losses, unread = {}, 0, [], []
    for partition, first in topic.start.items():
        at, end = reached.get(partition), topic.end[partition]
        if at is None:
            starts[partition] = first
            if first > 0:
                skipped += first
                unread.append(_unread(partition, first))
            continue
        starts[partition] = at = first if at < first <= at + hidden else at
        if first <= at <= end:
            continue
        losses.append(_loss(partition, at, first, end))
        skipped += max(first - at, 0)
        starts[partition] = first
        if at > end:  # these offsets may now have other sessions than those that the table has read
            below[partition] = end
    return _Resumption(starts, below, skipped, losses, unread)


def records_for(records: int, read_bytes: int) -> int:
    """How many offsets the next batch may have, after one that read `read_bytes` in `records` records."""
    if not records:
        return FIRST_RECORDS
    fitting = BATCH_BYTES * records // max(read_bytes, 1)
    return max(FEWEST_RECORDS, min(fitting, MOST_RECORDS))


def carries_on(operation: str) -> bool:
    """Whether a group's earlier note still holds after a commit that has no note about the group.

    It does if somebody deletes, changes or adds rows: the lake does not append those again. After a commit
    that restores an older version or makes the table anew, only the rows show what the table holds.
    """
    return not operation.startswith(_BEGINNINGS)


def changes_rows(operation: str, note: str | None) -> bool:
    """Whether a commit may have changed rows without counting them: it is neither Baton's nor upkeep."""
    return operation not in _UPKEEP and parse_note(note) is None


def with_counts(note: Note, sessions: int, fragments: int, size: int, days: Spans) -> Note:
    """The note with its counts increased by these sessions, fragments, bytes and rows by day."""
    return msgspec.structs.replace(
        note,
        sums=note.sums.plus(days) if note.sums is not None else None,
        sessions=note.sessions + sessions,
        fragments=note.fragments + fragments,
        bytes=note.bytes + size,
    )


_BEGINNINGS: Final = ("CREATE ", "REPLACE TABLE", "RESTORE", "CLONE", "CONVERT")
_UPKEEP: Final = frozenset(
    {
        *("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "ADD COLUMNS"),
        *("UNSET TBLPROPERTIES", "CHANGE COLUMN", "UPGRADE PROTOCOL", "ADD CONSTRAINT", "DROP CONSTRAINT"),
        *("COMPUTE STATS", "REORG", "DROP FEATURE"),
    }
)


def _loss(partition: int, at: int, first: int, end: int) -> str:
    if at > end:
        return (
            f"partition {partition} of the sessions topic ends at offset {end}, but the lake has read it "
            f"up to {at}: Kafka has lost records"
        )
    return (
        f"{first - at} offsets of partition {partition} of the sessions topic, {at} up to {first}, were "
        "deleted before the lake read them"
    )


def _unread(partition: int, first: int) -> str:
    return (
        f"{first} offsets of partition {partition} of the sessions topic, 0 up to {first}, were deleted "
        "before the lake read any of it: it may never have had their sessions"
    )


def _shares(starts: Mapping[int, int], ends: Mapping[int, int], records: int) -> dict[int, Range]:
    """Ranges that advance all partitions by the same share of what they have left."""
    left = {partition: ends[partition] - first for partition, first in starts.items()}
    total = sum(left.values())
    return {
        partition: (
            starts[partition],
            starts[partition] + min(rest, -(-rest * records // max(total, records))),
        )
        for partition, rest in left.items()
        if rest > 0
    }
