"""ZooKeeper in memory: the same contract as `shared/zookeeper/connection.py`, and every way in which it can
fail.

`ZnodeStore` is the server, `InMemoryZooKeeper` a client of it, `InMemoryCoordinator` the real coordinator
on such a client: several of them over one store behave as several members of a group. Nothing here
reads a clock unless one is given, and nothing waits; other tasks run before and after each call takes
effect, as with a network.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from services.consumer.adapters.zookeeper.coordinator import ZooKeeperCoordinator
from shared.errors import NotFound, ZooKeeperUnavailable
from shared.model.names import Names
from shared.zookeeper.znodes import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Operation,
    Set,
    Watch,
    Znode,
    Znodes,
    ZooKeeperSession,
)

T = TypeVar("T")


@dataclass(slots=True)
class ZnodeStore:
    """The znodes and ZooKeeper sessions that clients share; sessions end by `expire` or `close` only."""

    clock: Callable[[], float] = lambda: 0.0
    znodes: dict[str, Znode] = field(default_factory=lambda: {"/": Znode(data=b"", version=0)})
    sessions: set[int] = field(default_factory=set)
    watches: dict[str, dict[Watch, None]] = field(default_factory=dict)
    opened: int = 0

    def open_session(self) -> int:
        """The id of a new ZooKeeper session."""
        self.opened += 1
        self.sessions.add(self.opened)
        return self.opened

    def expire(self, session: int) -> None:
        """Ends a ZooKeeper session: its ephemerals go; its client notices at its next call."""
        self.sessions.discard(session)
        for path in [path for path, znode in self.znodes.items() if znode.ephemeral_of == session]:
            self.apply([Delete(path)], session)

    def children(self, path: str) -> list[str]:
        """The names of the children, sorted."""
        prefix = path.rstrip("/") + "/"
        names = (other.removeprefix(prefix) for other in self.znodes if other.startswith(prefix))
        return sorted(name for name in names if name and "/" not in name)

    def apply(self, operations: Sequence[Operation], session: int) -> bool:
        """Does all or nothing; fires the watches of what changed."""
        before = dict(self.znodes)
        for operation in operations:
            if not self._do(operation, session):
                self.znodes = before
                return False
        for path in sorted({operation.path for operation in operations}):
            old, new = before.get(path), self.znodes.get(path)
            if old is not new:
                self._tell(path)
            if (old is None) != (new is None):
                self._tell(_parent(path))
        return True

    def _do(self, operation: Operation, session: int) -> bool:
        znode = self.znodes.get(operation.path)
        match operation:
            case Create(path, data, ephemeral):
                if znode is not None or _parent(path) not in self.znodes:
                    return False
                owner = session if ephemeral else 0
                self.znodes[path] = Znode(data=data, version=0, ephemeral_of=owner)
                return True
            case Check(_, version) | Set(_, _, version) | Delete(_, version):
                if znode is None or version not in (ANY_VERSION, znode.version):
                    return False
        match operation:
            case Set(path, data, _):
                self.znodes[path] = Znode(
                    data=data, version=znode.version + 1, ephemeral_of=znode.ephemeral_of
                )
            case Delete(path, _):
                if self.children(path):
                    return False
                del self.znodes[path]
        return True

    def _tell(self, path: str) -> None:
        for watch in self.watches.pop(path, ()):
            watch(path)


class ZnodesClient(Znodes, ABC):
    """A `Znodes` on a store; a subclass decides how reads and writes travel to it."""

    store: ZnodeStore

    async def get(
        self,
        path: str,
        *,
        watch: Watch | None = None,
        within: int | None = None,
        awaits_creation: bool = True,
    ) -> Znode | None:
        """The znode, or None where there is none."""
        return await self._read(
            path,
            watch,
            within,
            lambda: self.store.znodes.get(path),
            lambda: awaits_creation or path in self.store.znodes,
        )

    async def children(
        self, path: str, *, watch: Watch | None = None, within: int | None = None
    ) -> list[str]:
        """The names of the children, sorted."""
        return await self._read(path, watch, within, lambda: self.store.children(path))

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, within: int | None = None
    ) -> bool:
        """Creates the znode; False when it exists. Raises NotFound when its parent does not."""

        def write(session: int) -> bool:
            if _parent(path) not in self.store.znodes:
                raise NotFound(f"{path} has no parent in ZooKeeper")
            return self._apply([Create(path, data, ephemeral)], session)

        return await self._write(within, write)

    async def set(
        self, path: str, data: bytes, version: int = ANY_VERSION, *, within: int | None = None
    ) -> bool:
        """Writes the data; False when the znode has another version or does not exist."""
        return await self.transact([Set(path, data, version)], within=within)

    async def delete(self, path: str, version: int = ANY_VERSION, *, within: int | None = None) -> bool:
        """Deletes it; False when it has another version or children, or does not exist."""
        return await self.transact([Delete(path, version)], within=within)

    async def transact(self, operations: Sequence[Operation], *, within: int | None = None) -> bool:
        """Does all of the operations in order, or (False) none."""
        return await self._write(within, lambda session: self._apply(operations, session))

    @abstractmethod
    async def _read(
        self,
        path: str,
        watch: Watch | None,
        within: int | None,
        read: Callable[[], T],
        is_watched: Callable[[], bool] = lambda: True,
    ) -> T:
        """What `read` finds at the store, with a watch left there if `is_watched`. Raises
        ZooKeeperUnavailable.
        """

    @abstractmethod
    async def _write(self, within: int | None, write: Callable[[int], bool]) -> bool:
        """What `write` returns for the session in which it arrives. Raises ZooKeeperUnavailable."""

    @abstractmethod
    def _apply(self, operations: Sequence[Operation], session: int) -> bool:
        """Does all of the operations at the store, or (False) none."""


class InMemoryZooKeeper(ZnodesClient):
    """A client one step away from its store.

    Faults, each set by the test: `lose_requests` writes are not done, `lose_answers` writes are done
    without an answer, `delay_requests` writes are done only at `deliver_delayed()`; all of them raise
    ZooKeeperUnavailable. `disconnect()` until `reconnect()` every call does. `slow[path]`: the answer to
    the next read of the path is on its way until the event is set.
    """

    def __init__(self, store: ZnodeStore, session_timeout_s: float = 6.0) -> None:
        self.store = store
        self.lose_requests = 0
        self.lose_answers = 0
        self.delay_requests = 0
        self.slow: dict[str, asyncio.Event] = {}
        self.calls = 0
        self._delayed: list[tuple[Callable[[int], bool], int]] = []
        self._timeout_s = session_timeout_s
        self._connected = False
        self._answered_s = float("-inf")
        self._session: ZooKeeperSession | None = None
        self._watching: dict[tuple[str, Watch], None] = {}
        self.reconnect()

    @property
    def session(self) -> ZooKeeperSession | None:
        """The present ZooKeeper session (the last one while disconnected)."""
        return self._session

    @property
    def answered_s(self) -> float:
        """When the last answered request was sent; pings are thought to be sent all the time."""
        if self._connected and self._session is not None and self._session.id in self.store.sessions:
            self._answered_s = self.store.clock()
        return self._answered_s

    def now_s(self) -> float:
        """The store's clock."""
        return self.store.clock()

    def disconnect(self) -> None:
        """From now on every call raises ZooKeeperUnavailable; the ZooKeeper session lives on."""
        _ = self.answered_s
        self._connected = False

    def reconnect(self) -> None:
        """Connects again: in the same ZooKeeper session unless it has expired; all watches fire."""
        if self._session is None or self._session.id not in self.store.sessions:
            now_s = self.store.clock()
            self._session = ZooKeeperSession(
                id=self.store.open_session(), timeout_s=self._timeout_s, since_s=now_s
            )
            self._answered_s = now_s
        self._connected = True
        watching, self._watching = self._watching, {}
        for path, watch in watching:
            watches = self.store.watches.get(path, {})
            if watch in watches:
                del watches[watch]
                watch(path)

    async def close(self) -> None:
        """Ends the ZooKeeper session."""
        if self._connected and self._session is not None:
            self.store.expire(self._session.id)
        self._connected = False

    def deliver_delayed(self) -> list[bool]:
        """Does the delayed writes now, if their ZooKeeper sessions still live; whether each was done."""
        delayed, self._delayed = self._delayed, []
        return [session in self.store.sessions and write(session) for write, session in delayed]

    async def _read(
        self,
        path: str,
        watch: Watch | None,
        within: int | None,
        read: Callable[[], T],
        is_watched: Callable[[], bool] = lambda: True,
    ) -> T:
        await self._travel(within)
        if watch is not None and is_watched():
            self.store.watches.setdefault(path, {})[watch] = None
            self._watching[path, watch] = None
        found = read()
        if path in self.slow:
            await self.slow.pop(path).wait()
        await self._travel(within)
        return found

    async def _write(self, within: int | None, write: Callable[[int], bool]) -> bool:
        session = await self._travel(within)
        if self.lose_requests > 0:
            self.lose_requests -= 1
            raise ZooKeeperUnavailable("the request was lost")
        if self.delay_requests > 0:
            self.delay_requests -= 1
            self._delayed.append((write, session))
            raise ZooKeeperUnavailable("the request is late")
        done = write(session)
        if self.lose_answers > 0:
            self.lose_answers -= 1
            raise ZooKeeperUnavailable("the answer was lost")
        await self._travel(within)
        return done

    def _apply(self, operations: Sequence[Operation], session: int) -> bool:
        return self.store.apply(operations, session)

    async def _travel(self, within: int | None) -> int:
        """One way through the network; the ZooKeeper session in which it arrives."""
        self.calls += 1
        await asyncio.sleep(0)
        if not self._connected or self._session is None:
            raise ZooKeeperUnavailable("not connected to ZooKeeper")
        if self._session.id not in self.store.sessions:
            self.reconnect()
            raise ZooKeeperUnavailable("that ZooKeeper session has expired")
        if within is not None and within != self._session.id:
            raise ZooKeeperUnavailable("that ZooKeeper session is over")
        return self._session.id


class InMemoryCoordinator(ZooKeeperCoordinator):
    """The coordinator of one member over a shared store; `zookeeper` is where its faults are set."""

    def __init__(
        self,
        store: ZnodeStore,
        member: str,
        *,
        count: int,
        group: str = "default",
        session_timeout_s: float = 6.0,
        is_fenced: bool = True,
    ) -> None:
        self.zookeeper = InMemoryZooKeeper(store, session_timeout_s)
        address = f"http://{member}"
        super().__init__(
            self.zookeeper, Names(), group, member, count=count, address=address, is_fenced=is_fenced
        )


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
