"""The property of random logs finds faults in how ids age, and in how a checkpoint stores them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from services.consumer.core.commits import checkpoint, checkpoint_format
from services.consumer.core.commits import writer as checkpoint_writer
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.writer import CheckpointWriter
from services.consumer.core.large_dict import LargeDict
from services.consumer.core.sessions import covered
from services.consumer.core.sessions.covered import Change, CoveredKeys
from services.consumer.core.sessions.fold import Fold
from services.consumer.core.sessions.remembered import forget_old, remember
from tests.logs import difference, is_found

Patch = pytest.MonkeyPatch


def remember_nothing_beside_an_open_session(patch: Patch) -> None:
    """While a session is open, only its own ids count."""
    add = Fold._add

    def wrong(self: Fold, fragment: Any, *given: Any) -> Any:
        if fragment.key not in self.open:
            return add(self, fragment, *given)
        kept, self.covered.entries = self.covered.entries, LargeDict()
        try:
            return add(self, fragment, *given)
        finally:
            self.covered.entries = LargeDict(kept | self.covered.entries)

    patch.setattr(Fold, "_add", wrong)


def keep_ids_without_end(patch: Patch) -> None:
    """Remembered ids never age."""

    def remembers(self: CoveredKeys, key: str, hashed: int, a: int) -> bool:
        return key in self.entries and hashed in self.entries[key].ids

    patch.setattr(CoveredKeys, "remembers", remembers)
    patch.setattr(covered, "forget_old", lambda ids, a, repeat_ms: None)


def age_ids_too_early(patch: Patch) -> None:
    """An id is forgotten 1 ms too early."""
    remembers = CoveredKeys.remembers
    patch.setattr(CoveredKeys, "remembers", lambda self, key, hashed, a: remembers(self, key, hashed, a + 1))


def age_ids_too_late(patch: Patch) -> None:
    """An id is forgotten 1 ms too late."""
    remembers = CoveredKeys.remembers
    patch.setattr(CoveredKeys, "remembers", lambda self, key, hashed, a: remembers(self, key, hashed, a - 1))


def age_ids_by_the_newest_session(patch: Patch) -> None:
    """Each session that closes makes all of its key's ids young again: the rule before this one."""

    def wrong(ids: Any, added: Any, last_a: int) -> Any:
        return dict.fromkeys(remember(ids, added, last_a), last_a)

    patch.setattr(covered, "remember", wrong)


def forget_what_is_old_at_the_commit(patch: Patch) -> None:
    """A checkpoint drops the ids that are old when it is written, but a replay begins at an earlier A."""
    prepare = Stream._preparing_commit

    def wrong(self: Stream) -> Any:
        for entry in self.assembler.covered.entries.values():
            forget_old(entry.ids, self.assembler.a, self.settings.repeat_ms)
        return prepare(self)

    patch.setattr(Stream, "_preparing_commit", wrong)
    patch.setattr(CheckpointWriter, "_is_whole_due", lambda self: True)


def forget_at_loading_by_the_commit(patch: Patch) -> None:
    """A new owner drops what is old 100 ms after the A before its safe offset."""
    patch.setattr(checkpoint, "forget_old", lambda ids, a, repeat_ms: forget_old(ids, a + 100, repeat_ms))


def write_too_few_new_ids(patch: Patch) -> None:
    """A commit leaves out one of the ids that a key has remembered since the last one."""
    take = CoveredKeys.take_changes

    def wrong(self: CoveredKeys, safe_offset: int, safe_a: int) -> dict[str, Change]:
        changes = take(self, safe_offset, safe_a)
        return {key: Change(entry, max(0, new - 1)) for key, (entry, new) in changes.items()}

    patch.setattr(CoveredKeys, "take_changes", wrong)


def replace_ids_instead_of_adding(patch: Patch) -> None:
    """A new owner keeps only the ids that the last commit wrote of a key."""
    put = checkpoint_format.put_covered
    patch.setattr(
        checkpoint,
        "put_covered",
        lambda covered, wire: put(covered, msgspec.structs.replace(wire, adds=False)),
    )


def store_no_ages(patch: Patch) -> None:
    """A checkpoint stores ids as if all were as young as the newest."""
    wire = checkpoint_format.covered_wire
    patch.setattr(
        checkpoint_writer, "covered_wire", lambda *given: msgspec.structs.replace(wire(*given), ages=[])
    )


def forget_ids_of_parked_sessions(patch: Patch) -> None:
    """A parked session is written with its new ids only, as if the checkpoint held none before."""
    apply = checkpoint._apply

    def wrong(found: Any, record: Any) -> None:
        parked = [msgspec.structs.replace(chunk, ids_start=0) for chunk in record.parked]
        apply(found, msgspec.structs.replace(record, parked=parked))

    patch.setattr(checkpoint, "_apply", wrong)


FAULTS: list[Callable[[Patch], None]] = [
    remember_nothing_beside_an_open_session,
    keep_ids_without_end,
    age_ids_too_early,
    age_ids_too_late,
    age_ids_by_the_newest_session,
    forget_what_is_old_at_the_commit,
    forget_at_loading_by_the_commit,
    write_too_few_new_ids,
    replace_ids_instead_of_adding,
    store_no_ages,
    forget_ids_of_parked_sessions,
]


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """Ids that age too early, too late or by the checkpoint, or that it does not store, change a session."""
    plant(monkeypatch)

    assert is_found(difference)
