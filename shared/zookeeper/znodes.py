"""The port to ZooKeeper: znodes, the operations of a transaction, the ZooKeeper session, and `Znodes`.

Pure. `shared/zookeeper/connection.py` implements `Znodes` with real servers, `tests/fakes/coordinator.py`
with a dictionary. Coordinators, the stream table and control's view depend only on this file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

ANY_VERSION = -1
"""The version that matches every version."""

Watch = Callable[[str], None]
"""Called once with the path when the znode may have changed; then read it again, with a new watch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Znode:
    """Data and version of a znode; `ephemeral_of` is the ZooKeeper session that it ends with, or 0.

    Versions start at 0 again when a znode is created anew.
    """

    data: bytes
    version: int
    ephemeral_of: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSession:
    """One ZooKeeper session: its id, negotiated time-out, and start (boot clock, s)."""

    id: int
    timeout_s: float
    since_s: float


@dataclass(frozen=True, slots=True)
class Check:
    """Fails the transaction unless the znode has this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Creates a znode; fails the transaction if it exists."""

    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Writes a znode's data; fails the transaction unless it has this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a znode; fails the transaction unless it has this version."""

    path: str
    version: int = ANY_VERSION


Operation = Check | Create | Set | Delete


class Znodes(Protocol):
    """The calls to ZooKeeper; each ends in bounded time.

    ZooKeeperUnavailable from a write means that its outcome is unknown: read the znode to find out. With
    `within` (the id of a ZooKeeper session) a call is never sent in another session: what was decided in one
    session must not be done in the next.
    """

    @property
    def session(self) -> ZooKeeperSession | None:
        """The current ZooKeeper session, while disconnected the last one; None before the first."""

    @property
    def answered_s(self) -> float:
        """When the last request of that session that the leader has answered was sent (boot clock, s).

        Reads do not count: any server answers them, also one that has lost its leader.
        """

    def now_s(self) -> float:
        """The boot clock: seconds, monotonic, counting suspension."""

    async def get(
        self,
        path: str,
        *,
        watch: Watch | None = None,
        within: int | None = None,
        awaits_creation: bool = True,
    ) -> Znode | None:
        """The znode, or None if it does not exist; `watch` fires when it is created, written or deleted.

        Without `awaits_creation` a missing znode is not watched: watches on znodes that never come back would
        add up, here and at the server.
        """

    async def children(
        self, path: str, *, watch: Watch | None = None, within: int | None = None
    ) -> list[str]:
        """The sorted names of the children; none if the znode does not exist."""

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, within: int | None = None
    ) -> bool:
        """Creates the znode; False if it exists. Raises NotFound if its parent does not."""

    async def set(
        self, path: str, data: bytes, version: int = ANY_VERSION, *, within: int | None = None
    ) -> bool:
        """Writes the data; False if the znode has another version or does not exist."""

    async def delete(self, path: str, version: int = ANY_VERSION, *, within: int | None = None) -> bool:
        """Deletes the znode; False if it has another version or children, or does not exist."""

    async def transact(self, operations: Sequence[Operation], *, within: int | None = None) -> bool:
        """Does all operations in order and returns True, or none of them and returns False."""

    async def make_path(self, path: str) -> None:
        """Creates the znode and its missing ancestors, persistent and empty."""
        # implemented here, on the other calls: it is the same for every client
        if await self.get(path) is not None:
            return
        names = path.strip("/").split("/")
        for depth in range(1, len(names) + 1):
            await self.create("/" + "/".join(names[:depth]))

    async def close(self) -> None:
        """Ends the ZooKeeper session, and with it its ephemerals; for good, bounded, never raises."""
