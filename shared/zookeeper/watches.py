"""The watches of one client of ZooKeeper, by path; each fires once.

Used by `shared/zookeeper/connection.py`.
"""

from __future__ import annotations

from shared.zookeeper.znodes import Watch


class Watches(dict[str, set[Watch]]):
    """Who waits for which znode to change."""

    def add(self, path: str, watch: Watch | None) -> None:
        """Adds a watch, before the request that sets it is sent: the event may overtake the answer."""
        if watch is not None:
            self.setdefault(path, set()).add(watch)

    def discard(self, path: str, watch: Watch | None) -> None:
        """Removes a watch that waits for nothing."""
        watches = self.get(path, set())
        watches -= {watch}
        if not watches:
            self.pop(path, None)

    def fire(self, path: str) -> None:
        """Calls and removes the watches of a path."""
        for watch in self.pop(path, ()):
            watch(path)

    def fire_all(self) -> None:
        """Calls and removes every watch: an event may have been lost with a connection."""
        for path in list(self):
            self.fire(path)
