"""Which records of each key are accounted for, and which fragment ids each key remembers.

When a session closes, its key is *covered* through an offset: a replay skips the key's records up to there,
because they stand in a session that was delivered. The same entry remembers the session's newest ids, so that
a repeat is dropped even after its session has gone. The fold covers keys, the checkpoint stores what changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from services.consumer.core.sessions.state import NO_IDS, Covered, OpenSession, is_droppable

REMEMBERED_IDS = 2_500
"""Newest ids that a key remembers of its last closed session: as many as one request may carry."""


class CoveredKeys:
    """Key → `Covered`, in order of offset; `repeat_ms`: how long ids count after their session.

    `changed`: keys that were covered since the last commit. `unparked`: those among them whose session stands
    in the checkpoint as parked, so the next commit must end it there.
    """

    def __init__(self, repeat_ms: int, entries: dict[str, Covered] | None = None) -> None:
        self.entries = entries if entries is not None else {}
        self.changed: dict[str, Covered] = {}
        self.unparked: set[str] = set()
        self._repeat_ms = repeat_ms

    def __repr__(self) -> str:
        return f"<CoveredKeys {len(self)}, {len(self.changed)} changed>"

    def __len__(self) -> int:
        return len(self.entries)

    def cover(self, key: str, entry: Covered) -> None:
        """Makes this the key's entry, and the newest of all."""
        self.entries.pop(key, None)  # a dict keeps the place of a key that is only overwritten
        self.entries[key] = self.changed[key] = entry

    def cover_session(self, session: OpenSession, through: int) -> None:
        """Covers the key of a session that closes, through that offset."""
        if session.parked:
            self.unparked.add(session.key)
        ids: Mapping[int, None] = session.ids or NO_IDS
        if len(ids) > REMEMBERED_IDS:
            ids = dict.fromkeys(list(ids)[-REMEMBERED_IDS:])
        self.cover(session.key, Covered(offset=through, last_a=session.last_a, ids=ids))

    def cover_repeat(self, key: str, offset: int) -> None:
        """A repeat was dropped while the key had no open session: its offset is accounted for, too."""
        entry = self.entries[key]
        self.cover(key, Covered(offset=offset, last_a=entry.last_a, ids=entry.ids))

    def covers(self, key: str, offset: int) -> bool:
        """Whether the key's record at that offset is accounted for."""
        entry = self.entries.get(key)
        return entry is not None and offset <= entry.offset

    def remembered(self, key: str, a: int) -> Mapping[int, None]:
        """The hashes of ids that the key still remembers when A is `a`."""
        entry = self.entries.get(key)
        return entry.ids if entry is not None and a <= entry.last_a + self._repeat_ms else NO_IDS

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
            del self.entries[key]
        return dropped

    def take_changes(self, safe_offset: int, safe_a: int) -> dict[str, Covered]:
        """What a commit with this safe offset has to write; from here on, changes count for the next one."""
        for key in self.forget(safe_offset, safe_a):
            if key not in self.unparked:  # the checkpoint still holds the parked session that it ends
                self.changed.pop(key, None)
        changed, self.changed, self.unparked = self.changed, {}, set()
        return changed
