"""What a key remembers of its closed sessions: each id ages on its own, and costs the checkpoint little."""

from __future__ import annotations

import msgspec

from services.consumer.core.commits.checkpoint import new_stream
from services.consumer.core.commits.stream import Stream, StreamLimits
from shared.model.group import GroupSettings
from tests.logs import commit_of
from tests.reference import Rec

FRAGMENTS = 20_000
EVERY_MS = 120
"""2,500 fragments in `repeat_ms`: one more than that, and the bound on their number would hide their age."""
PER_COMMIT = 8
"""About a second's fragments."""


def short_sessions(fragments: int, every_ms: int = EVERY_MS) -> list[Rec]:
    """A log of one key whose every fragment ends its session."""
    return [
        Rec(
            n,
            1_000_000 + n * every_ms,
            b"k",
            msgspec.json.encode({"key": "k", "id": f"{n:020}", "end": True}),
        )
        for n in range(fragments)
    ]


def new() -> Stream:
    """A stream without any record, under the default settings."""
    return Stream(
        group="default",
        stream=0,
        epoch=1,
        settings=GroupSettings(),
        limits=StreamLimits(),
        checkpoint=new_stream(),
        now_s=0.0,
    )


def written_per_byte(log: list[Rec]) -> float:
    """Bytes of checkpoint records for each byte of fragments, with one commit a second."""
    stream, offset, written = new(), 0, 0
    for at in range(0, len(log), PER_COMMIT):
        stream.fold(log[at : at + PER_COMMIT], 0.0)
        commit = commit_of(stream)
        written += sum(map(len, commit.records))
        stream.committed(commit, range(offset, offset + len(commit.records)), 0.0)
        offset += len(commit.records)
    return written / sum(len(record.value) for record in log)


def test_short_sessions_cost_a_checkpoint_a_small_multiple_of_what_comes_in() -> None:
    """A commit writes the ids that are new, not all that the key remembers."""
    assert written_per_byte(short_sessions(FRAGMENTS)) < 2
