"""Members of a group inside the test's own process, on real Kafka and ZooKeeper.

They are wired as `services.consumer` wires them. The log, its judge and separate processes come from
`tests/e2e`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from services.consumer import __main__ as wiring
from services.consumer.app import create_app
from services.consumer.member.member import Member
from services.consumer.member.metrics import ConsumerMetrics
from services.consumer.member.status import Rates, member_status
from services.consumer.settings import ConsumerSettings
from services.consumer.stream.worker import StreamWorker
from shared.errors import ZooKeeperUnavailable
from shared.model.cluster import MemberNode
from shared.model.group import GroupSettings
from shared.server.face import Face
from shared.server.listener import http_server
from shared.service.settings import load
from shared.zookeeper.connection import ZooKeeper
from shared.zookeeper.link import Link
from tests.e2e.fleet import Fleet, fleet
from tests.servers import free_port
from tests.waiting import until

SETTINGS = GroupSettings(gap_ms=60_000, lateness_ms=10_000, idle_ms=3_600_000, repeat_ms=3_600_000)


@dataclass(slots=True)
class Joined:
    """One member in this process."""

    member: Member
    zookeeper: ZooKeeper
    server: str
    stop: asyncio.Event
    task: asyncio.Task[None]
    around: contextlib.AsyncExitStack
    """Its HTTP face, and what else is closed in the end."""

    def worker(self, stream: int) -> StreamWorker:
        """The worker of a stream that it runs."""
        worker = self.member.effect_runner.workers.worker(stream)
        assert worker is not None
        return worker

    @property
    def running(self) -> list[int]:
        """The streams that it reads."""
        return [worker.stream for worker in self.member.workers if worker.state == "running"]

    @property
    def session_id(self) -> int:
        """Its ZooKeeper session."""
        assert self.zookeeper.session is not None
        return self.zookeeper.session.id

    async def leave(self) -> None:
        """An orderly stop."""
        self.stop.set()
        await self.task
        await self.around.aclose()

    async def expire(self) -> None:
        """Ends its ZooKeeper session behind its back, as the server does after the time-out.

        The credentials suffice for that, but a faster member reclaims its session.
        """
        before = self.session_id

        async def has_expired() -> bool:
            credentials = self.zookeeper._credentials
            assert credentials is not None
            if self.session_id == before and credentials.session_id == before:
                thief = Link(self.server, 2.0, credentials, lambda path: None)
                with contextlib.suppress(ZooKeeperUnavailable, TimeoutError):
                    async with asyncio.timeout(2.0):
                        await thief.open()
                        await thief.end_session()
                await thief.abandon()
            return self.session_id != before

        await until(has_expired, lambda: f"{self.zookeeper!r} has not expired")


class Group:
    """The members of one group; `fleet` has the log and its judgement."""

    def __init__(self, one: Fleet) -> None:
        self.fleet = one
        self.members: list[Joined] = []

    async def join(self, name: str, **more: str) -> Joined:
        """A member that has begun to take part; `more` settings are named by their variables."""
        own = {"BATON_MEMBER": name, "BATON_PORT": str(free_port())} | more
        settings = load(ConsumerSettings, self.fleet.environment | own)
        async with contextlib.AsyncExitStack() as around:
            zookeeper = ZooKeeper(settings.zookeeper, settings.zookeeper_timeout_s, settings.zookeeper_access)
            around.push_async_callback(zookeeper.close)
            found = await wiring.prepare(settings, zookeeper, [])
            node = MemberNode(address=settings.address)
            member = await around.enter_async_context(wiring.member_of(settings, zookeeper, node, found))
            reception = wiring.reception_of(settings, member, found)
            rates = Rates(time.monotonic)
            app = create_app(
                status=lambda: member_status([member], name, settings.group, node, rates),
                plan=member.plan,
                complaints=member.complaints,
                metrics=ConsumerMetrics([member]),
                reception=lambda: reception,
                workers=lambda: member.workers,
            )
            server = http_server(Face(app), settings.host, settings.port, tls=settings.tls)
            await around.enter_async_context(server)
            stop = asyncio.Event()
            task = asyncio.create_task(member.run(stop), name=name)
            self.members.append(Joined(member, zookeeper, settings.zookeeper, stop, task, around.pop_all()))
        return self.members[-1]

    async def until(self, reached: Callable[[], bool]) -> None:
        """Returns when it is so; fails at once when a member has ended by an error."""

        async def is_so() -> bool:
            for one in self.members:
                if one.task.done():
                    one.task.result()
            return reached()

        await until(is_so, lambda: f"not reached: {[one.member.workers for one in self.members]}")

    async def end(self) -> None:
        """Stops all."""
        await asyncio.gather(*(one.leave() for one in self.members))
        self.members.clear()


@contextlib.asynccontextmanager
async def group(
    kafka: str, zookeeper: str, namespace: str, home: Path, *, streams: int = 2
) -> AsyncIterator[Group]:
    """A group without members yet; none is left afterwards."""
    async with fleet(kafka, zookeeper, namespace, home, SETTINGS, streams=streams) as one:
        found = Group(one)
        try:
            yield found
        finally:
            for joined in found.members:
                joined.task.cancel()
                await asyncio.wait([joined.task])
                await joined.around.aclose()
