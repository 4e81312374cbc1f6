"""Counts and bytes of every stage of the pipeline, from the lines read to the sessions in the lake.

Pure. Each stage is counted independently (by the importer, Kafka's offsets, the heads, a reader of the
topic, Spark). After one import into an empty Baton all counts must be equal; repeats, markers and ticks are
counted separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cli.importing.tally import Tally
from shared.model.head import Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Sessions, the fragments in them, and the fragments' bytes as posted."""

    sessions: int
    fragments: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Stage:
    """One row: the stage, its fragments without repeats, and their bytes.

    `text_bytes`: bytes of the log's text; they are not bytes of fragments and not compared.
    """

    name: str
    fragments: int
    bytes: int | None = None
    sessions: int | None = None
    text_bytes: int | None = None


def stages_of(
    *, tally: Tally, end_offsets: int, counts: Counts, read: Amount, lake: Amount, audit: Mapping[str, Any]
) -> list[Stage]:
    """The rows in the order of the pipeline.

    `end_offsets`: sum over the streams; `counts`: sums of the committed heads; `read`: the topic `sessions`
    read committed; `audit`: the result of the job, whose own `fragments` and `bytes` Spark read from Kafka.
    """
    # records in the broker that are in no session: not fragments at all, or fragments that came before
    apart = counts.markers + counts.ticks + counts.unreadable + counts.repeats
    # consumed bytes include repeats, delivered bytes do not
    repeated = counts.bytes - counts.delivered_bytes if counts.repeats else 0
    in_kafka = audit["bytes"] - repeated
    return [
        Stage("lines read", tally.lines, text_bytes=tally.bytes_read),
        Stage("parsed", tally.parsed),
        Stage("sent", tally.sent),
        Stage("acknowledged", tally.accepted, tally.bytes),
        Stage("in the broker, by its offsets", end_offsets - apart),
        Stage("in the broker, as Spark reads it", audit["fragments"] - counts.repeats, in_kafka),
        Stage("consumed", counts.fragments - counts.repeats, counts.bytes - repeated),
        Stage("in delivered sessions", counts.delivered, counts.delivered_bytes, counts.sessions),
        Stage("in the topic sessions", read.fragments, read.bytes, read.sessions),
        Stage("in the lake", lake.fragments, lake.bytes, lake.sessions),
    ]


def inequalities(stages: list[Stage]) -> list[str]:
    """A sentence for each stage whose count differs from that of the stage before it.

    >>> inequalities([Stage("sent", 3), Stage("consumed", 2)])
    ['fragments: 3 sent, but 2 consumed']
    """
    sentences = []
    for measure in ("fragments", "bytes", "sessions"):
        counted = [(stage.name, n) for stage in stages if (n := getattr(stage, measure)) is not None]
        # only neighbours: the sentence then names the very step that lost or added something
        for (before, held), (after, holds) in pairwise(counted):
            if held != holds:
                sentences.append(f"{measure}: {held:,} {before}, but {holds:,} {after}")
    return sentences
