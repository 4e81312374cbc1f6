"""What ZooKeeper's users see of it: a znode, the operations of a transaction, the ZooKeeper session.

Pure. `shared/zookeeper/connection.py` speaks these to a real server, `tests/fakes/coordinator.py` to a
dictionary. A `Znodes` is all that coordinators, the stream table and control's view ask of ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

ANY_VERSION = -1
"""The version that matches every version."""

Watch = Callable[[str], None]
"""Called once, with the path, when what was read may have changed: then read (and watch) again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Znode:
    """Data and version of a znode; `ephemeral_of` is the ZooKeeper session that it dies with, or 0.

    Versions begin at 0 again when a znode is made anew.
    """

    data: bytes
    version: int
    ephemeral_of: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSession:
    """One ZooKeeper session: its id, negotiated time-out, and when it began (boot clock, s)."""

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
    """Makes a znode; fails the transaction when it exists."""

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
    """ZooKeeper, as its users need it.

    Every call ends in bounded time. ZooKeeperUnavailable from a write means that its outcome is
    unknown: read what it did. With `within` (the id of a ZooKeeper session) a call is never sent in
    another one: what was decided in one session must not be done in the next.
    """

    @property
    def session(self) -> ZooKeeperSession | None:
        """The present ZooKeeper session (the last one while disconnected); None before the first."""

    @property
    def answered_s(self) -> float:
        """When the last answered request of that session was sent (boot clock, s)."""

    def now_s(self) -> float:
        """The boot clock: seconds, monotonic, counting suspension."""

    async def get(self, path: str, *, watch: Watch | None = None, within: int | None = None) -> Znode | None:
        """The znode, or None where there is none; `watch` is told when it is written, made, deleted."""

    async def children(
        self, path: str, *, watch: Watch | None = None, within: int | None = None
    ) -> list[str]:
        """The names of the children, sorted; none where the znode does not exist."""

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, within: int | None = None
    ) -> bool:
        """Makes the znode; False when it exists. Raises NotFound when its parent does not."""

    async def set(
        self, path: str, data: bytes, version: int = ANY_VERSION, *, within: int | None = None
    ) -> bool:
        """Writes the data; False when the znode has another version or does not exist."""

    async def delete(self, path: str, version: int = ANY_VERSION, *, within: int | None = None) -> bool:
        """Deletes it; False when it has another version or children, or does not exist."""

    async def transact(self, operations: Sequence[Operation], *, within: int | None = None) -> bool:
        """Does all of the operations in order, or (False) none."""

    async def make_path(self, path: str) -> None:
        """Makes the znode and its ancestors where they are missing, persistent and empty."""
