"""Sessions are a function of the log: lazy, crashing and parking owners deliver what one eager fold gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from services.consumer.core.commits import checkpoint, chunks
from services.consumer.core.commits import writer as checkpoint_writer
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.writer import CheckpointWriter
from services.consumer.core.sessions import covered
from services.consumer.core.sessions.assembly import Assembler
from services.consumer.core.sessions.covered import CoveredKeys
from services.consumer.core.sessions.fold import Fold
from services.consumer.core.sessions.open_table import OpenTable
from services.consumer.core.sessions.state import Covered
from tests.effort import effort
from tests.logs import difference, is_found

SEEDS = effort(3_000)
Patch = pytest.MonkeyPatch


def differences(seeds: range) -> list[str]:
    """What the lazy owners of these seeds deliver differently from the eager fold."""
    return [text for seed in seeds if (text := difference(seed))]


def spread_whole_sets(patch: Patch) -> None:
    """Whole sets spread over many commits, with changes in between."""
    patch.setattr(checkpoint_writer, "MAX_CHUNK_BYTES", 60)
    patch.setattr(checkpoint_writer, "MIN_WHOLE_BYTES", 200)
    patch.setattr(checkpoint_writer, "WHOLE_RECORDS_PER_COMMIT", 1)


def write_whole_sets_at_every_commit(patch: Patch) -> None:
    """Not a fault: writes whole sets so often that faults in them show."""
    patch.setattr(CheckpointWriter, "_is_whole_due", lambda self: True)


def test_random_logs_give_the_sessions_of_one_eager_fold() -> None:
    """Batch sizes, late looks for silence, parking, commits and crashes change neither what is delivered nor
    what is open."""
    assert differences(range(SEEDS)) == []


@pytest.mark.soak
def test_a_hundred_thousand_random_logs_do(monkeypatch: Patch) -> None:
    """The same for many more logs; in half of them, whole sets spread over many commits."""
    assert differences(range(SEEDS, 50_000)) == []
    spread_whole_sets(monkeypatch)
    assert differences(range(50_000, 100_000)) == []


@pytest.mark.parametrize(
    ("write", "seeds"), [(write_whole_sets_at_every_commit, 500), (spread_whole_sets, 1_000)]
)
def test_how_whole_sets_are_written_changes_nothing(
    write: Callable[[Patch], None], seeds: int, monkeypatch: Patch
) -> None:
    """At every commit, or piece by piece with changes in between: the same sessions are delivered."""
    write(monkeypatch)

    assert differences(range(effort(seeds))) == []


def restore_with(patch: Patch, **changes: Callable[[], Any]) -> None:
    """A new owner restores something other than what its checkpoint holds."""
    restore = Assembler.restore
    patch.setattr(
        Assembler,
        "restore",
        lambda self, **kw: restore(self, **(kw | {name: make() for name, make in changes.items()})),
    )


def begin_with(patch: Patch, **changes: Any) -> None:
    """A new owner begins with something other than what its head holds."""
    init = Assembler.__init__
    patch.setattr(Assembler, "__init__", lambda self, s, **kw: init(self, s, **(kw | changes)))


def cover_with(patch: Patch, change: Callable[[Covered], Covered]) -> None:
    """A closed session leaves something else behind."""
    cover = CoveredKeys.cover
    patch.setattr(CoveredKeys, "cover", lambda self, key, entry: cover(self, key, change(entry)))


def drop_covered_below(patch: Patch, margin: int) -> None:
    """Covered keys are dropped below the safe offset plus `margin`, whatever ids they must remember."""

    def is_droppable(entry: Covered, safe_offset: int, a: int, repeat_ms: int) -> bool:
        return entry.offset < safe_offset + margin

    patch.setattr(covered, "is_droppable", is_droppable)
    patch.setattr(checkpoint, "is_droppable", is_droppable)


def commit_the_position_as_safe(patch: Patch) -> None:
    """The safe offset ignores the open sessions."""
    prepare = Stream._preparing_commit

    def wrong(self: Stream) -> Any:
        self.assembler.unpin(list(self.assembler.open.values()))
        return prepare(self)

    patch.setattr(Stream, "_preparing_commit", wrong)


def move_w_at_a_marker(patch: Patch) -> None:
    """A marker moves W."""
    fold_keyless = Fold._fold_keyless

    def wrong(self: Fold, raw: bytes, offset: int, closed: list[Any]) -> bool:
        is_done = fold_keyless(self, raw, offset, closed)
        for session in self.open.values():
            session.w -= 10
        return is_done

    patch.setattr(Fold, "_fold_keyless", wrong)


def park_without_a(patch: Patch) -> None:
    """A parked session loses the A at its last fragment."""
    chunk = chunks._chunk
    patch.setattr(chunks, "_chunk", lambda *given: msgspec.structs.replace(chunk(*given), last_a=0))


def write_whole_sets_without_parked(patch: Patch) -> None:
    """A whole set leaves out the parked sessions, although everything below it is deleted."""
    write_whole_sets_at_every_commit(patch)
    whole = CheckpointWriter._whole_part
    patch.setattr(
        CheckpointWriter, "_whole_part", lambda self, covered, opened, n: whole(self, covered, OpenTable(), n)
    )


FAULTS: dict[str, Callable[[Patch], None]] = {
    "a new owner starts without the covered keys": lambda patch: restore_with(
        patch, covered=lambda: CoveredKeys(60)
    ),
    "a new owner starts without the parked sessions": lambda patch: restore_with(patch, parked=OpenTable),
    "a new owner starts without W": lambda patch: begin_with(patch, w=-1),
    "a new owner starts without A": lambda patch: begin_with(patch, a=-1),
    "one record too few is covered": lambda patch: cover_with(
        patch, lambda entry: Covered(offset=entry.offset - 1, ids=entry.ids)
    ),
    "a closed session's ids are forgotten": lambda patch: cover_with(
        patch, lambda entry: Covered(offset=entry.offset)
    ),
    "silence is noticed during a replay": lambda patch: patch.setattr(
        Assembler, "is_replaying", property(lambda self: False)
    ),
    "covered keys are dropped while a replay needs them": lambda patch: drop_covered_below(patch, 5),
    "covered keys are dropped with ids to remember": lambda patch: drop_covered_below(patch, 0),
    "the safe offset ignores open sessions": commit_the_position_as_safe,
    "a marker moves W": move_w_at_a_marker,
    "a parked session loses A": park_without_a,
    "a whole set has no parked sessions": write_whole_sets_without_parked,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, monkeypatch: Patch) -> None:
    """The property above can fail: each broken rule makes some random log differ."""
    FAULTS[fault](monkeypatch)

    assert is_found(difference)
