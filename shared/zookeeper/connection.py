"""A ZooKeeper client that reconnects: calls, watches, the ZooKeeper session and the time of its last answer.

`ZooKeeper` has one `Link` (`shared/zookeeper/link.py`) at a time and pings it. When a link fails in any way
it is discarded with everything in flight, and a new one is tried every second, which re-attaches to the same
ZooKeeper session while the server still has it. Results are of the types in `shared/zookeeper/znodes.py`;
every failure is ZooKeeperUnavailable. Every service uses it; tests have `InMemoryZooKeeper`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Self, TypeVar

from shared.errors import ZooKeeperRefused, ZooKeeperUnavailable
from shared.zookeeper.access import AccessSource
from shared.zookeeper.link import Credentials, Link
from shared.zookeeper.watches import Watches
from shared.zookeeper.znodes import ANY_VERSION, Operation, Watch, Znode, Znodes, ZooKeeperSession

RETRY_S = 1.0
"""Interval of the attempts to connect."""
MAX_ATTEMPT_S = 2.0
"""Time limit of one attempt; together with RETRY_S it must not exceed the members' settle time of 3 s."""
PINGS_PER_TIMEOUT = 6
"""Pings per session time-out, so that `answered_s`, on which the lease rests, is always recent. One costs the
leader a message and no disk access."""

REMEMBERED_S = 10.0
"""For so long a process complains of a refusal: callers retry every few seconds."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


def boot_time_s() -> float:
    """Seconds on a clock that never steps and, where the system has one, also counts suspension."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class ZooKeeper(Znodes):
    """A `Znodes` on real servers (`host:port,…`) that keeps itself connected.

    It lives from `connect()` until `close()`, across connections and even ZooKeeper sessions; `session` shows
    the current one. A watch fires when its znode changes, and every watch fires after a new connection.
    """

    def __init__(
        self,
        servers: str,
        session_timeout_s: float,
        access: AccessSource | None = None,
        *,
        clock: Callable[[], float] = boot_time_s,
    ) -> None:
        hosts = [server.strip() for server in servers.split(",")]
        random.shuffle(hosts)  # so that the clients of a cluster spread over its servers
        # one server per link, so that an unresponsive one costs a single attempt
        self._servers = itertools.cycle(hosts)
        # failed attempts, three for each server, before we take it that ZooKeeper was reset
        self._patience = 3 * len(hosts)
        self._session_timeout_s = session_timeout_s
        self._access = access
        self._refused = ("", float("-inf"))
        self._call_timeout_s = max(1.0, session_timeout_s / 2)
        self._clock = clock
        self._link: Link | None = None
        self._connected = asyncio.Event()
        self._credentials: Credentials | None = None
        self._session: ZooKeeperSession | None = None
        self._answered_s = float("-inf")
        self._watches = Watches()
        self._keeper: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "connected" if self.is_connected else "disconnected"
        return f"<ZooKeeper {state}, session {self._session and hex(self._session.id)}>"

    @property
    def session(self) -> ZooKeeperSession | None:
        """See Znodes."""
        return self._session

    @property
    def answered_s(self) -> float:
        """See Znodes."""
        return self._answered_s

    @property
    def complaint(self) -> str:
        """How ZooKeeper has refused us in the last seconds; empty if it has not."""
        why, at_s = self._refused
        return why if self._clock() < at_s + REMEMBERED_S else ""

    @property
    def is_connected(self) -> bool:
        """Whether calls can be sent now."""
        return self._link is not None and self._link.is_usable

    def now_s(self) -> float:
        """See Znodes."""
        return self._clock()

    async def connect(self, timeout_s: float | None = None) -> None:
        """Returns when connected; keeps trying in the background even after a time-out.

        Raises ZooKeeperUnavailable without a connection within `timeout_s`.
        """
        if self._keeper is None:
            # aiozk logs every attempt with a traceback; this file logs what matters
            logging.getLogger("aiozk").setLevel(logging.CRITICAL)
            self._keeper = asyncio.create_task(self._keep(), name="zookeeper keeper")
        try:
            async with asyncio.timeout(timeout_s):
                while not self.is_connected:
                    self._connected.clear()
                    await self._connected.wait()
        except TimeoutError:
            raise ZooKeeperUnavailable(f"no ZooKeeper server answered within {timeout_s} s") from None

    async def close(self) -> None:
        """Ends the ZooKeeper session (its ephemerals go) and every task; bounded, never raises."""
        # the keeper first: it would replace the link that is closed below
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])
        link, self._link = self._link, None
        self._connected.clear()
        self._watches.clear()
        if link is not None:
            if not link.lost.is_set():
                await link.end_session()
            await link.abandon()

    async def __aenter__(self) -> Self:
        await self.connect(timeout_s=30.0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(
        self,
        path: str,
        *,
        watch: Watch | None = None,
        within: int | None = None,
        awaits_creation: bool = True,
    ) -> Znode | None:
        """See Znodes."""
        self._watches.add(path, watch)
        znode = await self._call(within, lambda link: link.get(path, watch is not None, awaits_creation))
        if znode is None and not awaits_creation:
            self._watches.discard(path, watch)
        return znode

    async def children(
        self, path: str, *, watch: Watch | None = None, within: int | None = None
    ) -> list[str]:
        """See Znodes."""
        self._watches.add(path, watch)
        return await self._call(within, lambda link: link.children(path, watch is not None))

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, within: int | None = None
    ) -> bool:
        """See Znodes."""
        return await self._call(within, lambda link: link.create(path, data, ephemeral), is_proof=True)

    async def set(
        self, path: str, data: bytes, version: int = ANY_VERSION, *, within: int | None = None
    ) -> bool:
        """See Znodes."""
        return await self._call(within, lambda link: link.set(path, data, version), is_proof=True)

    async def delete(self, path: str, version: int = ANY_VERSION, *, within: int | None = None) -> bool:
        """See Znodes."""
        return await self._call(within, lambda link: link.delete(path, version), is_proof=True)

    async def transact(self, operations: Sequence[Operation], *, within: int | None = None) -> bool:
        """See Znodes."""
        return await self._call(within, lambda link: link.transact(operations), is_proof=True)

    async def set_acl(self, path: str, *, is_locked: bool) -> bool:
        """Locks an existing znode to our user, or opens it to all; False if there is nothing to change."""
        return await self._call(None, lambda link: link.set_acl(path, is_locked=is_locked))

    async def _call(
        self, within: int | None, send: Callable[[Link], Awaitable[T]], *, is_proof: bool = False
    ) -> T:
        """The answer. `is_proof`: only the leader can give it, so the session lived when this was sent."""
        link = self._link
        if link is None or not link.is_usable:
            raise ZooKeeperUnavailable("not connected to ZooKeeper")
        # what was decided in one session must not be done in the next: its ephemerals may be gone
        if within is not None and within != link.session_id:
            raise ZooKeeperUnavailable("that ZooKeeper session has ended")
        # the time of sending, not of the answer: the answer proves only that the session lived then
        sent_s = self._clock()
        try:
            async with asyncio.timeout(self._call_timeout_s):
                answer = await send(link)
        except ZooKeeperRefused as error:
            self._refused = (error.detail, self._clock())
            raise
        except TimeoutError:
            why = f"no answer from {link.server} within {self._call_timeout_s:g} s"
            raise ZooKeeperUnavailable("ZooKeeper did not answer in time", cause=why) from None
        # an answer on a discarded link proves nothing about the session of the new one
        if is_proof and link is self._link:
            self._answered_s = max(self._answered_s, sent_s)
        return answer

    # the background task that stays connected

    async def _keep(self) -> None:
        while True:
            try:
                link, sent_s = await self._open()
                self._adopt(link, sent_s)
                await self._ping_until_lost(link)
                logger.warning("connection to ZooKeeper lost", extra={"server": link.server})
            except Exception:  # whatever aiozk raises, the connection must come back
                logger.exception("ZooKeeper client failed, reconnecting")
                await asyncio.sleep(RETRY_S)
            self._connected.clear()
            if self._link is not None:
                lost, self._link = self._link, None
                # a link without a session must not replace the credentials of the last one
                if lost.credentials.session_id:
                    self._credentials = lost.credentials
                await lost.abandon()

    async def _open(self) -> tuple[Link, float]:
        """A new link, however long it takes, and the time when its first request was sent."""
        for failures in itertools.count():
            started_s = self._clock()
            old = self._credentials
            if old is not None and failures > self._patience:
                # every server is behind the last change that we have seen, so ZooKeeper was reset
                old = replace(old, zxid=None)
            link = Link(next(self._servers), self._session_timeout_s, old, self._watches.fire)
            try:
                access = await self._access.read() if self._access else None
                async with asyncio.timeout(min(RETRY_S + 0.25 * failures, MAX_ATTEMPT_S)):
                    await link.open(access)
                return link, started_s
            except BaseException as error:
                await link.abandon()
                if not isinstance(error, ZooKeeperUnavailable | TimeoutError):
                    raise
                why = str(error) or "no answer in time"
            if failures == 0:
                logger.warning("no connection to ZooKeeper", extra={"server": link.server, "why": why})
            await asyncio.sleep(max(0.0, started_s + RETRY_S - self._clock()))
        raise AssertionError("itertools.count() has ended")

    def _adopt(self, link: Link, sent_s: float) -> None:
        old = self._session
        if old is None or old.id != link.session_id:
            self._session = ZooKeeperSession(
                id=link.session_id, timeout_s=link.timeout_s, since_s=self._clock()
            )
            self._answered_s = sent_s
        else:
            self._answered_s = max(self._answered_s, sent_s)
        self._link = link
        self._credentials = link.credentials
        self._connected.set()
        logger.info(
            "connected to ZooKeeper",
            extra={
                "server": link.server,
                "session": hex(link.session_id),
                "timeout_s": link.timeout_s,
                "same_session": old is not None and old.id == link.session_id,
            },
        )
        self._watches.fire_all()

    async def _ping_until_lost(self, link: Link) -> None:
        interval_s = link.timeout_s / PINGS_PER_TIMEOUT
        with contextlib.suppress(ZooKeeperUnavailable, TimeoutError):
            while link.is_usable:
                # two intervals without an answer: the connection is as good as lost
                async with asyncio.timeout(2 * interval_s):
                    await self._call(None, Link.ping, is_proof=True)
                    # a password file that has changed is in force at once
                    if self._access and link.access != (access := await self._access.read()):
                        await link.authenticate(access)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(interval_s):
                        await link.lost.wait()
