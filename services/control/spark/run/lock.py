"""The lock of a run in ZooKeeper: it lets one driver at a time run a job of a group.

The driver holds it for the whole run and checks it before each commit. So the drivers of two controls, or one
that a dead control has left behind, never write the same tables in turns. One case remains: a driver that
freezes between its check and its commit, for longer than its ZooKeeper session lives, may commit while the
next one runs. docs/reliability.md says what that does to each table.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import platform
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import TimeoutError as TookTooLong
from typing import Any, Final, TypeVar

import msgspec

from services.control.spark.run.request import RunRequest, ZooKeeperPlace
from shared.errors import Conflict, ZooKeeperUnavailable
from shared.zookeeper.access import access_source
from shared.zookeeper.connection import ZooKeeper
from shared.zookeeper.znodes import Check, Znodes

POLL_S: Final = 0.2
MARGIN_S: Final = 4.0
"""How much longer than a dead holder's ZooKeeper session a run waits for the lock."""
ANSWER_S: Final = 20.0
"""How long a check waits for ZooKeeper: an outage that the session survives does not end the run."""
TURN_S: Final = 3600.0
"""How long a run without a time limit waits for its turn."""
RELEASE_S: Final = 0.5

T = TypeVar("T")
_releases: set[Callable[[], None]] = set()
CheckLock = Callable[[], None]
"""Raises LockLost if this run may no longer commit, ZooKeeperUnavailable if ZooKeeper does not answer."""


def unlocked() -> None:
    """The check of a run that takes no lock."""


class RunUnderWay(Conflict):
    """Another driver runs this job in this group."""


class LockLost(Conflict):
    """This run has lost its lock, so another one may be under way: it commits nothing more."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The data of the lock's znode."""

    run: str
    host: str
    pid: int


class RunLock:
    """The lock in the znode `path`, for `holder`."""

    def __init__(self, znodes: Znodes, path: str, holder: Holder) -> None:
        self._znodes = znodes
        self._path = path
        self._holder = holder
        self._session_id = 0
        self.is_lost = False

    def __repr__(self) -> str:
        return f"<RunLock {self._path} of run {self._holder.run}>"

    async def acquire(self, wait_s: float) -> None:
        """Waits until nobody else holds it. Raises RunUnderWay, ZooKeeperUnavailable."""
        until_s = self._znodes.now_s() + wait_s
        while not await self._take():
            if self._znodes.now_s() > until_s:
                raise RunUnderWay(await self._by_whom())
            await asyncio.sleep(POLL_S)

    async def _take(self) -> bool:
        session = self._znodes.session
        if session is None:
            return False
        self._session_id = session.id
        with contextlib.suppress(ZooKeeperUnavailable):  # an unknown outcome: the znode decides
            await self._znodes.make_path(self._path.rpartition("/")[0])
            if await self._znodes.create(
                self._path, msgspec.json.encode(self._holder), ephemeral=True, within=session.id
            ):
                return True
        with contextlib.suppress(ZooKeeperUnavailable):
            return await self._is_ours()
        return False

    async def _is_ours(self) -> bool:
        znode = await self._znodes.get(self._path, within=self._session_id)
        return znode is not None and znode.ephemeral_of == self._session_id

    async def check(self) -> None:
        """Raises LockLost if it is lost, ZooKeeperUnavailable if ZooKeeper does not answer in time."""
        until_s = self._znodes.now_s() + ANSWER_S
        while True:
            session = self._znodes.session
            if self.is_lost or session is None or session.id != self._session_id:
                break
            try:
                # a write, which only the leader can answer: so it proves that the session is alive
                await self._znodes.transact([Check(self._path, 0)], within=self._session_id)
                if await self._is_ours():
                    return
                break
            except ZooKeeperUnavailable:
                if self._znodes.now_s() > until_s:
                    raise
            await asyncio.sleep(POLL_S)
        self.is_lost = True
        raise LockLost(f"run {self._holder.run} has lost its lock {self._path}")

    async def _by_whom(self) -> str:
        with contextlib.suppress(ZooKeeperUnavailable, msgspec.DecodeError):
            znode = await self._znodes.get(self._path)
            if znode is not None:
                other = msgspec.json.decode(znode.data, type=Holder)
                return f"run {other.run} is under way on {other.host} (process {other.pid})"
        return f"another run of this job holds {self._path}"


def patience_of(request: RunRequest, place: ZooKeeperPlace) -> float:
    """How long the run waits for its lock (s).

    The holder usually does the same work, so the run only outwaits a dead one. If runs take turns, the holder
    does other work: then the run waits until its time limit, which ends it.
    """
    if request.takes_turns:
        return request.timeout_s or TURN_S
    return place.timeout_s + MARGIN_S


@functools.cache
def keeper() -> asyncio.AbstractEventLoop:
    """The loop of the thread that keeps the ZooKeeper sessions of all locks alive; started once."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="lock", daemon=True).start()
    return loop


@contextlib.contextmanager
def held_lock(request: RunRequest) -> Iterator[CheckLock]:
    """Holds the run's lock during the block and yields its check. Without a ZooKeeper it locks nothing.

    Raises RunUnderWay, ZooKeeperUnavailable. If the block fails after the lock was lost, it raises LockLost
    instead.
    """
    place = request.zookeeper
    if place is None:
        yield unlocked
        return
    loop = keeper()

    def wait_for(work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        waiting = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return waiting.result(timeout_s)
        except TookTooLong:
            waiting.cancel()
            raise ZooKeeperUnavailable("ZooKeeper did not answer in time") from None

    access = access_source(place.user, place.password_file, place.acl)
    zookeeper = ZooKeeper(place.servers, place.timeout_s, access)
    path = request.lock
    lock = RunLock(zookeeper, path, Holder(run=request.id, host=platform.node(), pid=os.getpid()))
    wait_s, patience_s = place.timeout_s + MARGIN_S, patience_of(request, place)

    def release() -> None:
        with contextlib.suppress(ZooKeeperUnavailable):
            wait_for(zookeeper.close(), RELEASE_S)

    _releases.add(release)
    try:
        wait_for(zookeeper.connect(wait_s), 2 * wait_s)
        wait_for(lock.acquire(patience_s), wait_s + patience_s)
        try:
            yield lambda: wait_for(lock.check(), 2 * ANSWER_S)
        except Exception as error:
            if lock.is_lost and not isinstance(error, LockLost):
                raise LockLost(f"run {request.id} has lost its lock {path}") from error
            raise
    finally:
        release()
        _releases.discard(release)


def release_locks() -> None:
    """Releases the locks of this process, which is about to be killed; takes up to `RELEASE_S` for each."""
    for release in list(_releases):
        release()
