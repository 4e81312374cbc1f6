"""Sessions are a function of the log: lazy, crashing and parking owners deliver what one eager fold gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from services.consumer.core.commits import checkpoint
from services.consumer.core.commits import writer as checkpoint_writer
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.writer import CheckpointWriter
from services.consumer.core.sessions import covered
from services.consumer.core.sessions.assembly import Assembler
from services.consumer.core.sessions.covered import CoveredKeys
from services.consumer.core.sessions.fold import Fold
from services.consumer.core.sessions.state import Covered, OpenSession
from tests.logs import difference

SEEDS = 3_000
FAULT_SEEDS = 2_000
"""Every planted fault must show within so many random logs."""


def test_random_logs_give_the_sessions_of_one_eager_fold() -> None:
    """Batch sizes, late looks for silence, parking, commits and crashes change neither what is delivered nor
    what is open."""
    found = [text for seed in range(SEEDS) if (text := difference(seed))]

    assert not found, found[0]


@pytest.mark.soak
def test_a_hundred_thousand_random_logs_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for many more logs; in half of them, whole sets spread over many commits."""
    found = [text for seed in range(SEEDS, 50_000) if (text := difference(seed))]
    monkeypatch.setattr(checkpoint_writer, "MAX_CHUNK_BYTES", 60)
    monkeypatch.setattr(checkpoint_writer, "MIN_WHOLE_BYTES", 200)
    monkeypatch.setattr(checkpoint_writer, "WHOLE_RECORDS_PER_COMMIT", 1)
    found += [text for seed in range(50_000, 100_000) if (text := difference(seed))]

    assert not found, found[0]


def forget_covered(patch: pytest.MonkeyPatch) -> None:
    """A new owner starts without the covered keys."""
    restore = Assembler.restore
    patch.setattr(
        Assembler, "restore", lambda self, **kw: restore(self, **(kw | {"covered": CoveredKeys(60)}))
    )


def forget_parked(patch: pytest.MonkeyPatch) -> None:
    """A new owner starts without the parked sessions."""
    restore = Assembler.restore
    patch.setattr(Assembler, "restore", lambda self, **kw: restore(self, **(kw | {"parked": []})))


def forget_w_of_the_head(patch: pytest.MonkeyPatch) -> None:
    """A new owner starts with no W."""
    init = Assembler.__init__
    patch.setattr(Assembler, "__init__", lambda self, s, **kw: init(self, s, **(kw | {"w": -1})))


def forget_a_of_the_head(patch: pytest.MonkeyPatch) -> None:
    """A new owner starts with no A."""
    init = Assembler.__init__
    patch.setattr(Assembler, "__init__", lambda self, s, **kw: init(self, s, **(kw | {"a": -1})))


def cover_one_record_too_few(patch: pytest.MonkeyPatch) -> None:
    """Covered ends one record before the session's last."""
    cover = CoveredKeys.cover
    patch.setattr(
        CoveredKeys,
        "cover",
        lambda self, key, e: cover(self, key, Covered(offset=e.offset - 1, last_a=e.last_a, ids=e.ids)),
    )


def remember_no_ids(patch: pytest.MonkeyPatch) -> None:
    """A closed session's ids are forgotten."""
    cover = CoveredKeys.cover
    patch.setattr(
        CoveredKeys, "cover", lambda self, key, e: cover(self, key, Covered(offset=e.offset, last_a=e.last_a))
    )


def take_over_no_ids(patch: pytest.MonkeyPatch) -> None:
    """A session opens without the ids that its key remembers."""
    open_session = Fold._open

    def wrong(self: Fold, *given: Any) -> OpenSession:
        session = open_session(self, *given)
        session.ids = None
        return session

    patch.setattr(Fold, "_open", wrong)


def keep_ids_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Remembered ids never grow old."""

    def remembered(self: CoveredKeys, key: str, a: int) -> Mapping[int, None]:
        return self.entries[key].ids if key in self.entries else {}

    patch.setattr(CoveredKeys, "remembered", remembered)


def close_while_replaying(patch: pytest.MonkeyPatch) -> None:
    """Silence is noticed during a replay."""
    patch.setattr(Assembler, "is_replaying", property(lambda self: False))


def drop_covered_too_early(patch: pytest.MonkeyPatch) -> None:
    """Covered keys are dropped while a replay may still need them."""
    early = lambda entry, safe_offset, a, repeat_ms: entry.offset < safe_offset + 5  # noqa: E731
    patch.setattr(covered, "is_droppable", early)
    patch.setattr(checkpoint, "is_droppable", early)


def drop_remembered_ids_too_early(patch: pytest.MonkeyPatch) -> None:
    """A covered key is dropped while it must still remember ids."""
    early = lambda entry, safe_offset, a, repeat_ms: entry.offset < safe_offset  # noqa: E731
    patch.setattr(covered, "is_droppable", early)
    patch.setattr(checkpoint, "is_droppable", early)


def commit_the_position_as_safe(patch: pytest.MonkeyPatch) -> None:
    """The safe offset ignores the open sessions."""
    prepare = Stream._prepare_commit

    def wrong(self: Stream) -> Any:
        for session in self.assembler.open.values():
            session.pin = -1
        return prepare(self)

    patch.setattr(Stream, "_prepare_commit", wrong)


def write_no_parked_again(patch: pytest.MonkeyPatch) -> None:
    """A whole set leaves the parked sessions out."""
    whole = CheckpointWriter._whole_part
    patch.setattr(
        CheckpointWriter, "_whole_part", lambda self, covered, opened, n: whole(self, covered, {}, n)
    )


def whole_sets_at_every_commit(patch: pytest.MonkeyPatch) -> None:
    """Not a fault: writes whole sets so often that faults in them show."""
    patch.setattr(CheckpointWriter, "_is_whole_due", lambda self: True)


def end_ignored_beside_a_marker(patch: pytest.MonkeyPatch) -> None:
    """A marker moves W."""
    fold_keyless = Fold._fold_keyless

    def wrong(self: Fold, raw: bytes, offset: int, closed: list[Any]) -> None:
        fold_keyless(self, raw, offset, closed)
        for session in self.open.values():
            session.w -= 10

    patch.setattr(Fold, "_fold_keyless", wrong)


def park_without_the_fold_state(patch: pytest.MonkeyPatch) -> None:
    """A parked session loses the A at its last fragment."""
    wire = checkpoint_writer._parked_wire

    def wrong(session: OpenSession, start: int) -> Any:
        whole = wire(session, start)
        return msgspec.structs.replace(whole, last_a=0)

    patch.setattr(checkpoint_writer, "_parked_wire", wrong)


FAULTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    forget_covered,
    forget_parked,
    forget_w_of_the_head,
    forget_a_of_the_head,
    cover_one_record_too_few,
    remember_no_ids,
    take_over_no_ids,
    keep_ids_for_ever,
    close_while_replaying,
    drop_covered_too_early,
    drop_remembered_ids_too_early,
    commit_the_position_as_safe,
    end_ignored_beside_a_marker,
    park_without_the_fold_state,
]


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: Any) -> None:
    """The property above can fail: each broken rule makes some random log differ."""
    plant(monkeypatch)

    assert _is_found()


def test_whole_sets_at_every_commit_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often everything is written, the same sessions are delivered."""
    whole_sets_at_every_commit(monkeypatch)

    assert not [text for seed in range(500) if (text := difference(seed))]


def test_whole_sets_spread_over_many_commits_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large state is written bit by bit, with changes in between, while owners die."""
    monkeypatch.setattr(checkpoint_writer, "MAX_CHUNK_BYTES", 60)
    monkeypatch.setattr(checkpoint_writer, "MIN_WHOLE_BYTES", 200)
    monkeypatch.setattr(checkpoint_writer, "WHOLE_RECORDS_PER_COMMIT", 1)

    assert not [text for seed in range(1_000) if (text := difference(seed))]


def test_a_whole_set_without_the_parked_sessions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole set must hold the parked sessions, because everything below it is deleted."""
    whole_sets_at_every_commit(monkeypatch)
    write_no_parked_again(monkeypatch)

    assert _is_found()


def _is_found() -> bool:
    for seed in range(FAULT_SEEDS):
        try:
            if difference(seed):
                return True
        except Exception:  # a broken rule may also end in an InvariantBroken or an InvalidInput
            return True
    return False
