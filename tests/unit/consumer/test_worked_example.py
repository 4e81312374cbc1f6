"""The worked example of the protocol (docs/protocol.md, checkpoints), step by step."""

from __future__ import annotations

from services.consumer.core.commits.checkpoint import Checkpoint, Commit, fold, new_stream
from services.consumer.core.commits.stream import Stream, StreamLimits
from shared.model.group import GroupSettings
from shared.model.sessions import parse_session
from tests.logs import commit_of
from tests.reference import Rec

LOG = ["s1", "s2", "s1", "s1E", "s3", "s2", "s4", "s3E", "s2E"]
"""By offset: the key of each fragment; E ends its session."""


def record(offset: int, text: str) -> Rec:
    key = text.removesuffix("E")
    end = "true" if text.endswith("E") else "false"
    return Rec(offset, 1_000 + offset, key.encode(), f'{{"key":"{key}","end":{end}}}'.encode())


class Owner:
    """An owner that commits after chosen offsets; `records` is its checkpoints partition."""

    def __init__(self, checkpoint: Checkpoint, epoch: int = 1) -> None:
        self.records: list[tuple[int, bytes]] = []
        self.sessions: list[tuple[str, list[int]]] = []
        self.stream = Stream(
            group="default",
            stream=0,
            epoch=epoch,
            settings=GroupSettings(),
            limits=StreamLimits(),
            checkpoint=checkpoint,
            now_s=0.0,
        )

    def read(self, first: int, last: int) -> None:
        self.stream.fold([record(n, LOG[n]) for n in range(first, last + 1)], 0.0)

    def commit(self) -> tuple[int, dict[str, int]]:
        """Commits; the safe offset, and key → covered offset as the stored checkpoint has them."""
        commit: Commit = commit_of(self.stream)
        offsets = [len(self.records) + n for n in range(len(commit.records))]
        self.records += zip(offsets, commit.records, strict=True)
        self.stream.committed(commit, offsets, 0.0)
        for _, raw in commit.sessions:
            session = parse_session(raw)
            self.sessions.append((session.key, [session.first_offset, session.last_offset]))
        return self.stream.head.safe_offset, covered(self.stored())

    def stored(self) -> Checkpoint:
        """What the next owner loads."""
        return fold(self.stream.head, self.records, repeat_ms=300_000)


def covered(checkpoint: Checkpoint) -> dict[str, int]:
    return {key: entry.offset for key, entry in checkpoint.covered.items()}


def test_the_worked_example_step_by_step() -> None:
    """After 3, 7 and 8: the safe offset and the covered keys are those of the protocol."""
    owner = Owner(new_stream())

    owner.read(0, 3)
    assert owner.commit() == (1, {"s1": 3})  # s2 is open

    owner.read(4, 7)
    assert owner.commit() == (1, {"s1": 3, "s3": 7})  # s2 still is

    owner.read(8, 8)
    assert owner.commit() == (6, {"s3": 7, "s2": 8})  # only s4 is open; s1 has nothing at or after 6

    assert owner.sessions == [("s1", [0, 3]), ("s3", [4, 7]), ("s2", [1, 8])]


def test_a_new_owner_replays_from_the_safe_offset_and_skips_what_is_covered() -> None:
    """After the commit at 7 a new owner reads 1 … 7 again and rebuilds s2 and s4, and nothing else."""
    first = Owner(new_stream())
    first.read(0, 7)
    first.commit()

    second = Owner(first.stored(), epoch=2)
    assert second.stream.position == 1
    second.read(1, 7)

    assert list(second.stream.assembler.open) == ["s2", "s4"]
    assert [s.first_offset for s in second.stream.assembler.open.values()] == [1, 6]
    assert second.stream.counts == first.stream.counts
    second.read(8, 8)
    commit_of(second.stream)
    assert second.stream.counts.sessions == 3
