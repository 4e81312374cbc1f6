"""What the topics' readers report to the judges besides the rows: what they read, and each stream's facts.

Pure. Reader and judge are two stages of one Spark job, and nothing is known about a stream before it is read.
So a reader adds its facts to the rows of every judge, where they sort before all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from services.control.spark.audit.fold import NOT_LATE, Cut, Late
from services.control.spark.audit.markers import Mark, Markers
from services.control.spark.audit.verdict import ALL_REMOVED, NOTHING_REMOVED, StreamFacts


class LogFacts(NamedTuple):
    """One stream's log as it was read: `first` its first offset, `gap` the first offset after a gap, or -1.

    `first_a`: A at the first record. `w`, `a`: at the end; `at_places`: just before `Given.places`, in their
    order. `marks`: (offset, time) of its markers. `counts`: records by kind, and `bytes` of fragments.
    """

    stream: int
    first: int
    gap: int
    first_a: int
    w: int
    a: int
    at_places: Sequence[tuple[int, int]]
    marks: Sequence[tuple[int, int]]
    counts: Mapping[str, int]


class TopicFacts(NamedTuple):
    """A partition of the sessions topic as it was read; `first` and `gap` as in LogFacts.

    `closed_at`: the lowest of the sessions of each stream.
    """

    partition: int
    first: int
    gap: int
    closed_at: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What is known about a stream before it is read, from its head and Kafka.

    `start`: where the reading begins. `head_w`: W at an offset at or above `start`, or None. `silent_to`: at
    most `position`; whatever silence had ended there is delivered.
    """

    position: int = 0
    log: int = 0
    start: int = 0
    head_w: int | None = None
    silent_to: int = 0

    @property
    def places(self) -> tuple[int, int]:
        """Where the judgement must know how late it was."""
        return self.silent_to, self.position


@dataclass(slots=True, kw_only=True)
class Facts:
    """The facts that have arrived so far."""

    logs: dict[int, LogFacts] = field(default_factory=dict)
    topic: dict[int, TopicFacts] = field(default_factory=dict)

    def streams(
        self, given: Mapping[int, Given], *, future_ms: int, topic_is_whole: bool
    ) -> dict[int, StreamFacts]:
        """The facts of each stream, once all have arrived."""
        removed = _removed_until(self.topic.values())
        found = {}
        for stream, known in given.items():
            log = self.logs.get(stream)
            until = NOTHING_REMOVED if topic_is_whole else removed.get(stream, ALL_REMOVED)
            silent, committed = [Late(*late) for late in log.at_places] if log else (NOT_LATE, NOT_LATE)
            found[stream] = StreamFacts(
                stream=stream,
                position=known.position,
                log=known.log,
                start=known.start,
                markers=Markers(Mark(*mark) for mark in log.marks) if log else Markers(),
                cut=_cut(known, log.first_a, future_ms) if log and known.start > 0 else None,
                silent=silent,
                committed=committed,
                end=Late(log.w, log.a) if log else NOT_LATE,
                removed_until=until,
            )
        return found


def _cut(known: Given, first_a: int, future_ms: int) -> Cut:
    """An upper bound of W before the start: append time plus `future_ms`, or the head's W if lower."""
    w_most = first_a + future_ms
    return Cut(first_a, w_most if known.head_w is None else min(w_most, known.head_w))


def _removed_until(partitions: Iterable[TopicFacts]) -> dict[int, int]:
    """By stream, the append time up to which sessions may be missing because retention removed them.

    A stream delivers its sessions in order. So a removed session closed before all that are left, and its
    fragments are no younger than what had been read when the first of these closed. The lowest `closed_at`
    is that time, whatever somebody has made of the others. Streams with no session left are not in the
    result.
    """
    until: dict[int, int] = {}
    for partition in partitions:
        for stream, closed_at in partition.closed_at.items():
            until[stream] = max(until.get(stream, NOTHING_REMOVED), closed_at)
    return until
