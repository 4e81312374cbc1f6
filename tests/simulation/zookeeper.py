"""ZooKeeper in the simulation: an ensemble that expires sessions by its own clock, and a client far from it.

The znodes are those of `tests/fakes/coordinator.py`. The client keeps its connection as
`shared/zookeeper/connection.py` does: it pings, throws a link away that does not answer, makes a new one, and
learns of an expired ZooKeeper session only then.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, TypeVar

from shared.errors import ZooKeeperUnavailable
from shared.model.names import Names
from shared.zookeeper.znodes import (
    Delete,
    Operation,
    Set,
    Watch,
    Znode,
    ZooKeeperSession,
)
from tests.fakes.coordinator import ZnodesClient, ZnodeStore
from tests.fakes.virtual_time import VirtualLoop
from tests.simulation.trace import Trace
from tests.simulation.wire import Wire

T = TypeVar("T")
_NAMES = Names()

GROUP = "default"
TIMEOUT_S = 3.0
"""Of a ZooKeeper session."""
PING_S = TIMEOUT_S / 4
CALL_S = TIMEOUT_S / 2
RETRY_S = 0.3
End = Literal["timeout", "killed", "closed"]


class Ensemble:
    """The servers: znodes, and ZooKeeper sessions that end when nothing was heard of them for too long.

    `ended`: how each finished session ended; `owners`: the process of each session.
    """

    def __init__(self, loop: VirtualLoop, trace: Trace, world: contextvars.Context) -> None:
        self.store = ZnodeStore(clock=loop.time)
        self.ended: dict[int, End] = {}
        self.owners: dict[int, str] = {}
        self.suspected: set[str] = set()
        """Processes whose member nodes others have deleted."""
        self.is_alive: Callable[[str], bool] = lambda process: False
        self.is_down = False
        self._loop = loop
        self._trace = trace
        self._world = world
        self._heard_s: dict[int, float] = {}
        self._damaged: dict[str, tuple[bytes, Znode]] = {}
        """What stood in a znode before it was damaged, and the damaged one."""

    def connect(self, process: str, old: int | None) -> int:
        """The session of a new connection: the old one if it still lives, else a new one."""
        self.check_up()
        if old is not None and old in self.store.sessions:
            self.hear(old)
            return old
        session = self.store.open_session()
        self.owners[session] = process
        self.hear(session)
        self._watch_over(session)
        return session

    def hear(self, session: int) -> None:
        """A request of the session has arrived. Raises ZooKeeperUnavailable when it has expired."""
        self.check_up()
        if session not in self.store.sessions:
            raise ZooKeeperUnavailable("that ZooKeeper session has expired")
        self._heard_s[session] = self._loop.now_s

    def check_up(self) -> None:
        """Raises ZooKeeperUnavailable while the ensemble is down."""
        if self.is_down:
            raise ZooKeeperUnavailable("no server answers")

    def come_back(self) -> None:
        """The ensemble is up again: every session has its whole time-out from now on."""
        self.is_down = False
        for session in self._heard_s:
            self._heard_s[session] = self._loop.now_s

    def end(self, session: int, how: End) -> None:
        """Ends a session: its ephemerals go."""
        if session in self.store.sessions:
            self.ended[session] = how
            self._trace.note(self.owners[session], "zookeeper session ends", session, how)
            self.store.expire(session)

    def reset(self) -> None:
        """All znodes and sessions are gone."""
        self._trace.note("", "zookeeper is reset")
        for session in sorted(self.store.sessions):
            self.end(session, "killed")
        self.store.znodes = {path: znode for path, znode in self.store.znodes.items() if len(path) == 1}

    def damageable(self) -> list[str]:
        """The znodes of the group with data, sorted."""
        group, znodes = _NAMES.group(GROUP), self.store.znodes
        return sorted(path for path in znodes if path.startswith(group) and znodes[path].data)

    def damage(self, path: str, data: bytes) -> None:
        """Overwrites a znode."""
        self._trace.note("", "is damaged", path, data)
        found = self.store.znodes[path]
        before = self._damaged[path][0] if self._is_damaged(path) else found.data
        self.store.apply([Set(path, data)], 0)
        self._damaged[path] = before, self.store.znodes[path]

    def repair(self) -> None:
        """An operator writes back what did not heal by itself."""
        for path, (before, _) in self._damaged.items():
            if self._is_damaged(path):
                self.store.apply([Set(path, before)], 0)

    def _is_damaged(self, path: str) -> bool:
        return path in self._damaged and self.store.znodes.get(path) is self._damaged[path][1]

    def apply(self, operations: Sequence[Operation], session: int) -> bool:
        """Does all of the operations, or none."""
        self.hear(session)
        self._note_suspicions(operations, session)
        done = self.store.apply(operations, session)
        self._trace.note_write(self.owners[session], operations, done)
        return done

    def _note_suspicions(self, operations: Sequence[Operation], session: int) -> None:
        for operation in operations:
            znode = self.store.znodes.get(operation.path)
            if not isinstance(operation, Delete) or znode is None or not znode.ephemeral_of:
                continue
            process, by = self.owners[znode.ephemeral_of], self.owners[session]
            is_member = operation.path == _NAMES.member(GROUP, process.rstrip("0123456789"))
            if is_member and process.rstrip("0123456789") != by.rstrip("0123456789"):
                self.suspected.add(process)
                how = "wrongly" if self.is_alive(process) else "rightly"
                self._trace.note(process, f"is {how} suspected", by)

    def _watch_over(self, session: int) -> None:
        if session not in self.store.sessions:
            return
        due_s = self._heard_s[session] + TIMEOUT_S
        if due_s <= self._loop.now_s and not self.is_down:
            self.end(session, "timeout")
            return
        again_s = due_s if due_s > self._loop.now_s else self._loop.now_s + TIMEOUT_S
        self._loop.call_at(again_s, self._watch_over, session, context=self._world)


class SimulatedZooKeeper(ZnodesClient):
    """One process' client of the ensemble; `keep` is its keeper's task."""

    def __init__(self, ensemble: Ensemble, process: str, wire: Wire, world: contextvars.Context) -> None:
        self.connected = asyncio.Event()
        self._lost = asyncio.Event()
        self.store = ensemble.store
        self._ensemble = ensemble
        self._process = process
        self._wire = wire
        self._world = world
        self._loop = ensemble._loop
        self._session: ZooKeeperSession | None = None
        self._answered_s = float("-inf")
        self._link = 0
        """The number of the present connection; 0 while there is none."""
        self._links = 0
        self._is_closed = False
        self._watches: dict[str, dict[Watch, None]] = {}

    @property
    def session(self) -> ZooKeeperSession | None:
        """The present ZooKeeper session (the last one while disconnected); None before the first."""
        return self._session

    @property
    def answered_s(self) -> float:
        """When the last answered ping or write of that session was sent."""
        return self._answered_s

    def now_s(self) -> float:
        """Seconds of virtual time: this clock goes on while the process is frozen."""
        return self._loop.now_s

    async def keep(self) -> None:
        """Connects, pings and reconnects until it is closed."""
        while not self._is_closed:
            await self._connect()
            while self._link:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PING_S):
                        await self._lost.wait()
                await self._ping()
            self.connected.clear()
            self._lost.clear()

    async def _connect(self) -> None:
        while not self._is_closed:
            old, sent_s = self._session.id if self._session is not None else None, self._loop.now_s
            try:
                found = await self._wire.call(
                    partial(self._ensemble.connect, self._process, old), RETRY_S, self._world
                )
            except ZooKeeperUnavailable:
                await asyncio.sleep(RETRY_S)
                continue
            if self._is_closed:
                return
            if found != old:
                self._session = ZooKeeperSession(id=found, timeout_s=TIMEOUT_S, since_s=self._loop.now_s)
                self._answered_s = sent_s
            else:
                self._answered_s = max(self._answered_s, sent_s)
            self._links += 1
            self._link = self._links
            self.connected.set()
            for path in list(self._watches):
                self._tell(path)
            return

    async def _ping(self) -> None:
        try:
            await self._call(None, self._ensemble.hear, 2 * PING_S, is_proof=True)
        except ZooKeeperUnavailable:
            self._link = 0

    def lose_link(self) -> None:
        """The server closes the connection, as at the end of a session: the client reconnects soon."""
        self._link = 0
        self._lost.set()

    async def close(self) -> None:
        """Ends the session; nothing more is sent, so a session that cannot be ended times out."""
        self.end_session()
        self._is_closed, self._link = True, 0
        await asyncio.sleep(0)

    def end_session(self) -> None:
        """The process has closed its client: the session ends at once, if that can still be said.

        A killed process says nothing more, although its tasks end in order here.
        """
        session = self._session
        is_heard = self._link and not self._wire.dead and not self._wire.weather.cut_requests
        if session is not None and is_heard:
            self._ensemble.end(session.id, "closed")

    async def _read(
        self,
        path: str,
        watch: Watch | None,
        within: int | None,
        read: Callable[[], T],
        is_watched: Callable[[], bool] = lambda: True,
    ) -> T:
        if watch is not None:
            self._watches.setdefault(path, {})[watch] = None

        def arrive(session: int) -> T:
            self._ensemble.hear(session)
            if watch is not None and is_watched():
                self.store.watches.setdefault(path, {})[self._on_server_event] = None
            return read()

        return await self._call(within, arrive)

    async def _write(self, within: int | None, write: Callable[[int], bool]) -> bool:
        return await self._call(within, write, is_proof=True)

    def _apply(self, operations: Sequence[Operation], session: int) -> bool:
        return self._ensemble.apply(operations, session)

    async def _call(
        self,
        within: int | None,
        effect: Callable[[int], T],
        patience_s: float = CALL_S,
        *,
        is_proof: bool = False,
    ) -> T:
        link, session = self._link, self._session
        if not link or session is None:
            raise ZooKeeperUnavailable("not connected to ZooKeeper")
        if within is not None and within != session.id:
            raise ZooKeeperUnavailable("that ZooKeeper session is over")
        sent_s, session_id = self._loop.now_s, session.id
        answer = await self._wire.call(lambda: effect(session_id), patience_s, self._world)
        if link != self._link:
            raise ZooKeeperUnavailable("the connection was lost")
        if is_proof:
            self._answered_s = max(self._answered_s, sent_s)
        return answer

    def _on_server_event(self, path: str) -> None:
        self._wire.push(lambda: self._tell(path), self.context)

    context: contextvars.Context
    """The process' own context, in which its watches fire."""

    def _tell(self, path: str) -> None:
        for watch in self._watches.pop(path, ()):
            watch(path)
