"""Which records of each key are accounted for, and which fragment ids each key remembers.

When a session closes, its key is *covered* through an offset: a replay skips the key's records up to there,
because they stand in a session that was delivered. The same entry remembers the ids of the key's closed
sessions (`remembered.py`), so that a repeat is dropped even after its session has gone. The fold covers keys,
the checkpoint stores what changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from services.consumer.core.large_dict import LargeDict
from services.consumer.core.sessions.remembered import NO_IDS, forget_old, remember
from services.consumer.core.sessions.state import Covered, OpenSession, is_droppable


class Change(NamedTuple):
    """A key's entry as a commit has to write it: the checkpoint lacks its newest `new_ids` ids."""

    entry: Covered
    new_ids: int


class CoveredKeys:
    """Key → `Covered`, in order of offset; `repeat_ms`: how long ids count after their session.

    `changed`: keys that were covered since the last commit. `unparked`: those among them whose session stands
    in the checkpoint as parked, so the next commit must end it there. `remembered_ids`: how many ids all keys
    hold, including a few that are forgotten but still held.
    """

    def __init__(self, repeat_ms: int, entries: dict[str, Covered] | None = None) -> None:
        self.entries: dict[str, Covered] = entries if entries is not None else LargeDict[str, Covered]()
        self.changed: dict[str, Covered] = {}
        self.unparked: set[str] = set()
        self.remembered_ids = sum(len(entry.ids) for entry in self.entries.values())
        self._new_ids: dict[str, int] = {}
        self._repeat_ms = repeat_ms

    def __repr__(self) -> str:
        return f"<CoveredKeys {len(self)}, {len(self.changed)} changed, {self.remembered_ids} ids>"

    def __len__(self) -> int:
        return len(self.entries)

    def cover(self, key: str, entry: Covered) -> None:
        """Makes this the key's entry, and the newest of all."""
        self.entries.pop(key, None)  # a dict keeps the place of a key that is only overwritten
        self.entries[key] = self.changed[key] = entry

    def cover_session(self, session: OpenSession, through: int, a: int) -> None:
        """Covers the key of a session that closes when A is `a`, through that offset.

        All that follows of the key comes at `a` or later, in a replay too, so the ids that are older than
        that are of no use any more.
        """
        key, added = session.key, session.ids
        if session.parked:
            self.unparked.add(key)
        entry = self.entries.get(key)
        ids = entry.ids if entry is not None else NO_IDS
        if ids or added:
            held = len(ids)
            forget_old(ids, a, self._repeat_ms)
            if added:
                ids = remember(ids, added, session.last_a)
                self._new_ids[key] = self._new_ids.get(key, 0) + len(added)
            self.remembered_ids += len(ids) - held
        self.cover(key, Covered(offset=through, ids=ids))

    def cover_repeat(self, key: str, offset: int) -> None:
        """A repeat was dropped while the key had no open session: its offset is accounted for, too."""
        self.cover(key, Covered(offset=offset, ids=self.entries[key].ids))

    def covers(self, key: str, offset: int) -> bool:
        """Whether the key's record at that offset is accounted for."""
        entry = self.entries.get(key)
        return entry is not None and offset <= entry.offset

    def remembers(self, key: str, hashed: int, a: int) -> bool:
        """Whether the id with this hash, which the key holds, still counts when A is `a`."""
        return a <= self.entries[key].ids[hashed] + self._repeat_ms

    def forget(self, safe_offset: int, safe_a: int, keep: Collection[str] = ()) -> list[str]:
        """Removes the keys that no replay from `safe_offset` (A before it: `safe_a`) can need, except those
        to keep; returns the removed ones. Cost: one step for each.
        """
        dropped = []
        for key, entry in self.entries.items():
            if key in keep or not is_droppable(entry, safe_offset, safe_a, self._repeat_ms):
                break  # entries are in order of offset, so the rest is needed as well
            dropped.append(key)
        for key in dropped:
            self.remembered_ids -= len(self.entries.pop(key).ids)
        return dropped

    def take_changes(self, safe_offset: int, safe_a: int) -> dict[str, Change]:
        """What a commit with this safe offset has to write; from here on, changes count for the next one."""
        for key in self.forget(safe_offset, safe_a):
            if key not in self.unparked:  # the checkpoint still holds the parked session that it ends
                self.changed.pop(key, None)
        new_ids = self._new_ids
        changes = {key: Change(entry, new_ids.get(key, 0)) for key, entry in self.changed.items()}
        self.changed, self._new_ids, self.unparked = {}, {}, set()
        return changes

    def take_over(self, changed: Iterable[str], unparked: Iterable[str]) -> None:
        """Goes on with the changes that an earlier owner did not commit: the next commit writes these keys
        with all their ids.
        """
        self.changed = {key: self.entries[key] for key in changed}
        self._new_ids = {key: len(entry.ids) for key, entry in self.changed.items()}
        self.unparked = set(unparked)
