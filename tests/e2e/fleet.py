"""Consumers as real processes over one Kafka and ZooKeeper, to be killed, paused and started again.

`Fleet` also keeps what they need: topics, the stream table, a log of visits written without HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
from aiokafka import AIOKafkaProducer

from cli.stack.leash import on_leash
from shared.errors import KafkaUnavailable
from shared.model.cluster import ClaimNode
from shared.model.fragments import encode_marker
from shared.model.group import GroupSettings
from shared.model.names import Names
from shared.zookeeper.connection import ZooKeeper
from shared.zookeeper.stream_table import ensure_table
from tests.e2e.crashing_consumer import CRASH
from tests.e2e.readers import Where
from tests.servers import free_port

CHECKOUT = Path(__file__).parents[2]
DEADLINE_S = 120.0
PARTITIONS = 2
PACE_S = 0.05
END_OF_TIME_MS = 9_000_000_000_000


async def poll(reached: Callable[[], Awaitable[bool]], told: Callable[[], str]) -> None:
    """Returns when `reached` says so; fails at the deadline with what `told` tells."""
    deadline = time.monotonic() + DEADLINE_S
    while not await reached():
        assert time.monotonic() < deadline, told()
        await asyncio.sleep(0.05)


class Visits:
    """An endless, seeded log: sessions ended by END, silence, limits; disorder, repeats, poison."""

    def __init__(self, rng: random.Random, keys: int = 120) -> None:
        self._rng = rng
        self._keys = [f"visitor-{n}" for n in range(keys)]
        self._now_ms = 1_700_000_000_000
        self._last: dict[str, bytes] = {}
        self._number = self.count = 0

    def next(self) -> tuple[str, bytes]:
        """Key and value of the next record; `count` counts them."""
        self.count += 1
        rng = self._rng
        key = rng.choice(self._keys)
        kind = rng.random()
        if kind < 0.02 and key in self._last:
            return key, self._last[key]
        if kind < 0.022:
            return key, b"poison"
        self._now_ms += rng.randrange(200)
        self._number += 1
        fragment = {
            "key": key,
            "time": self._now_ms - rng.randrange(3000),
            "id": f"f{self._number}",
            "end": kind > 0.95,
            "data": "x" * rng.choice((5, 50, 500)),
        }
        self._last[key] = msgspec.json.encode(fragment)
        return key, self._last[key]


class Fleet:
    """Consumers 0, 1, …, each a process that this one has started."""

    def __init__(
        self, where: Where, zookeeper: str, znodes: ZooKeeper, home: Path, settings: GroupSettings
    ) -> None:
        self.where = where
        self.settings = settings
        self.deaths = 0
        self._znodes = znodes
        self._home = home
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        fixed = {name: getattr(settings, name) for name in settings.__struct_fields__}
        self.environment = {f"BATON_{name.upper()}": str(value) for name, value in fixed.items()} | {
            "BATON_KAFKA": where.kafka,
            "BATON_ZOOKEEPER": zookeeper,
            "BATON_NAMESPACE": where.names.namespace,
            "BATON_ZOOKEEPER_TIMEOUT_S": "2",
            "BATON_SETTLE_S": "1",
            "BATON_GRACE_S": "1",
            "BATON_COMMIT_S": "0.5",
            "BATON_SESSION_PARTITIONS": str(where.partitions),
            "BATON_MAX_REPLAY_FRAGMENTS": "400",
        }

    def start(self, index: int, crash: str | None = None) -> None:
        """Starts consumer `index`, `crash` being planted in it; it dies with the test process."""
        own = {"BATON_MEMBER": f"consumer-{index}", "BATON_PORT": str(free_port())}
        if crash is not None:
            own[CRASH] = crash
        argv = on_leash([sys.executable, "-m", "tests.e2e.crashing_consumer"])
        with (self._home / f"consumer-{index}.log").open("ab") as log:
            self._processes[index] = subprocess.Popen(
                argv, cwd=CHECKOUT, env=os.environ | self.environment | own, stdout=log, stderr=log
            )

    def signal(self, index: int, number: signal.Signals) -> None:
        """Sends a signal to consumer `index`."""
        self._processes[index].send_signal(number)

    def is_running(self, index: int) -> bool:
        """Whether its process lives."""
        return self._processes[index].poll() is None

    async def kill(self, index: int) -> None:
        """SIGKILL; returns when it is dead."""
        self.signal(index, signal.SIGKILL)
        await self.died(index)

    async def died(self, index: int) -> None:
        """Returns when consumer `index` has ended by SIGKILL, its own or another's."""

        async def has_ended() -> bool:
            return not self.is_running(index)

        await poll(has_ended, lambda: f"consumer {index} did not die: {self.told()}")
        assert self._processes[index].returncode == -signal.SIGKILL, self.told()
        self.deaths += 1

    async def stopped(self, index: int) -> None:
        """Returns when consumer `index` stands still by SIGSTOP."""
        pid = self._processes[index].pid

        async def stands_still() -> bool:
            return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None  # noqa: ASYNC222  WNOHANG

        await poll(stands_still, lambda: f"consumer {index} goes on: {self.told()}")

    async def claims(self) -> dict[int, int]:
        """Stream → index of the consumer that has claimed it."""
        names, group = self.where.names, self.where.group
        found = {}
        for child in await self._znodes.children(names.claims(group)):
            znode = await self._znodes.get(names.claim(group, int(child)))
            if znode is not None:
                member = msgspec.json.decode(znode.data, type=ClaimNode).member
                found[int(child)] = int(member.removeprefix("consumer-"))
        return found

    async def until_claimed(self, without: int | None = None) -> dict[int, int]:
        """The claims, once every stream has an owner other than consumer `without`."""
        found: dict[int, int] = {}

        async def is_so() -> bool:
            nonlocal found
            found = await self.claims()
            return len(found) == self.where.streams and without not in found.values()

        await poll(is_so, lambda: f"claims {found}: {self.told()}")
        return found

    async def until_owning(self, index: int) -> None:
        """Returns when consumer `index` has claimed a stream."""

        async def is_so() -> bool:
            return index in (await self.claims()).values()

        await poll(is_so, lambda: f"consumer {index} owns nothing: {self.told()}")

    async def write(self, visits: Visits, count: int) -> None:
        """Appends the next `count` records, acknowledged by all."""
        async with AIOKafkaProducer(bootstrap_servers=self.where.kafka, enable_idempotence=True) as producer:
            await self._append(producer, visits, count)

    async def write_while(self, doing: Awaitable[None], visits: Visits, per_s: int) -> None:
        """Appends records at an even pace until `doing` has ended."""
        done = asyncio.ensure_future(doing)
        async with AIOKafkaProducer(bootstrap_servers=self.where.kafka, enable_idempotence=True) as producer:
            while not done.done():
                await asyncio.gather(
                    self._append(producer, visits, int(per_s * PACE_S)), asyncio.wait((done,), timeout=PACE_S)
                )
        done.result()

    async def _append(self, producer: AIOKafkaProducer, visits: Visits, count: int) -> None:
        sends = []
        for _ in range(count):
            key, value = visits.next()
            topic = self.where.names.fragments(self.table.stream_for(key.encode()))
            sends.append(await producer.send(topic, value=value, key=key.encode(), partition=0))
        await asyncio.gather(*sends)

    async def close_all(self) -> None:
        """Marks the end of time in every stream, and returns when that is committed everywhere."""
        ends = {}
        async with AIOKafkaProducer(bootstrap_servers=self.where.kafka) as producer:
            for stream in range(self.where.streams):
                sent = await producer.send_and_wait(
                    self.where.names.fragments(stream), value=encode_marker(END_OF_TIME_MS), partition=0
                )
                ends[stream] = sent.offset
        left: dict[int, int] = {}

        async def is_committed() -> bool:
            nonlocal left
            heads = await self.where.heads()
            at = {stream: heads[stream].position if stream in heads else -1 for stream in ends}
            left = {stream: end - at[stream] for stream, end in ends.items() if at[stream] <= end}
            return not left

        await poll(is_committed, lambda: f"not committed: {left}: {self.told()}")

    async def stop(self) -> None:
        """Stops all in an orderly way, once each owns a stream; every exit code must be 0."""
        running = [index for index in self._processes if self.is_running(index)]
        for index in running:
            await self.until_owning(index)
        for index in running:
            self.signal(index, signal.SIGTERM)
        codes = [await asyncio.to_thread(self._processes[index].wait, 30) for index in running]
        assert codes == [0] * len(codes), self.told()

    def end(self) -> None:
        """Ends what still runs, however."""
        for process in self._processes.values():
            process.kill()
            process.wait()

    def told(self) -> str:
        """The last words of every consumer."""
        logs = sorted(self._home.glob("consumer-*.log"))
        return "\n".join(f"{log.name}:\n{log.read_text()[-1500:]}" for log in logs)

    async def make_streams(self) -> None:
        """Topics and the stream table; tried again while Kafka is away, as a producer does."""

        async def is_made() -> bool:
            with contextlib.suppress(KafkaUnavailable):
                self.table = await ensure_table(
                    self._znodes,
                    self.where.names,
                    kafka=self.where.kafka,
                    streams=self.where.streams,
                    default_streams=1,
                    retention_ms=3_600_000,
                    replication=1,
                )
                return True
            return False

        await poll(is_made, lambda: "Kafka makes no topics")


@contextlib.asynccontextmanager
async def fleet(
    kafka: str, zookeeper: str, namespace: str, home: Path, settings: GroupSettings, *, streams: int = 4
) -> AsyncIterator[Fleet]:
    """A fleet without consumers yet; none is left afterwards."""
    where = Where(kafka, Names(namespace), streams, PARTITIONS)
    async with ZooKeeper(zookeeper, 6.0) as znodes:
        one = Fleet(where, zookeeper, znodes, home, settings)
        await one.make_streams()
        try:
            yield one
        finally:
            one.end()
