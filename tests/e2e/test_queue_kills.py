"""Workers, clients and the broker are killed and stopped, a queue is made anew: nothing is lost or doubled.

`make soak` runs it with 200,000 items and more than a hundred kills and stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.queue_load import distance
from tests.e2e.queue_clients import LEASE_S
from tests.e2e.queue_judge import Letter, Verdict, first_handed_out, judge, read_journals
from tests.e2e.service import Service
from tests.servers import KafkaServer, free_port
from tests.waiting import until

WORKERS = 3
CLIENT_PROCESSES = 3
CLIENTS = 10
"""In each of these processes."""
PUT_AT_ONCE = 1_000
MAX_ATTEMPTS = 4
ANEW = 20
"""Items of a queue before it is deleted and of the one that is made in its place."""
AWAY_S = LEASE_S + 1
"""So long is stopped what is stopped: its leases end."""
BROKER_AWAY_S = 2
MOST_DISTANCE = 2 * PUT_AT_ONCE
"""Blizzard's measure of order under kills: what a dead client held is late, and the others go on."""


class World:
    """The queue's workers and clients as processes, and the broker."""

    def __init__(self, kafka: KafkaServer, namespace: str, home: Path, seed: str) -> None:
        self.rng = random.Random(seed)
        self.struck: Counter[str] = Counter()
        self._kafka, self._home = kafka, home
        self._lives = 0
        ports = [free_port() for _ in range(WORKERS)]
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        common = {"BATON_KAFKA": kafka.address, "BATON_NAMESPACE": namespace}
        self._workers = [
            Service("services.queue", home / f"worker{n}.log", common | {"BATON_PORT": str(port)})
            for n, port in enumerate(ports)
        ]
        self._clients = [
            Service("tests.e2e.queue_clients", home / f"clients{n}.log", {"QUEUE_URLS": " ".join(self.urls)})
            for n in range(CLIENT_PROCESSES)
        ]
        self.faults: list[Callable[[], Awaitable[None]]] = [
            self.kill_worker,
            self.kill_all_workers,
            self.stop_worker,
            self.kill_clients,
            self.stop_clients,
            self.kill_broker,
            self.stop_broker,
            self.make_queue_anew,
        ]

    @property
    def journals(self) -> list[Path]:
        """What the clients have written, of all their lives."""
        return sorted(self._home.glob("*.journal"))

    async def start(self) -> None:
        """Returns once every worker is ready, and the queue is there."""
        for service in self._workers:
            service.start()
        async with httpx.AsyncClient(timeout=10) as http:
            for url in self.urls:
                await self._until_ready(http, url)
            answer = await http.put(f"{self.urls[0]}/queues/q", json={"max_attempts": MAX_ATTEMPTS})
            assert answer.status_code == 200, answer.text
        for service in self._clients:
            self._start_clients(service)

    async def end_clients(self) -> None:
        """Lets the clients finish what they have begun."""
        for service in self._clients:
            service.signal(signal.SIGTERM)
        for service in self._clients:
            assert await service.ended() == 0, service.tail()

    def end(self) -> None:
        """Ends all processes."""
        for service in (*self._clients, *self._workers):
            service.end()

    async def kill_worker(self) -> None:
        """SIGKILL; it comes back at once."""
        number = self.rng.randrange(WORKERS)
        self._workers[number].signal(signal.SIGKILL)
        await self._workers[number].ended()
        self._workers[number].start()
        async with httpx.AsyncClient(timeout=10) as http:
            await self._until_ready(http, self.urls[number])

    async def kill_all_workers(self) -> None:
        """SIGKILL to all at once: nobody has anything of the queue in memory any more."""
        for service in self._workers:
            service.signal(signal.SIGKILL)
        for service in self._workers:
            await service.ended()
        for service in self._workers:
            service.start()
        async with httpx.AsyncClient(timeout=10) as http:
            for url in self.urls:
                await self._until_ready(http, url)

    async def stop_worker(self) -> None:
        """SIGSTOP until the leases that it gave out have ended, with requests under way."""
        await self._stop(self.rng.choice(self._workers), AWAY_S)

    async def kill_clients(self) -> None:
        """SIGKILL: ten clients are gone, with what they hold."""
        service = self.rng.choice(self._clients)
        service.signal(signal.SIGKILL)
        await service.ended()
        self._start_clients(service)

    async def stop_clients(self) -> None:
        """SIGSTOP until their leases have ended: then they ack what others have had since."""
        await self._stop(self.rng.choice(self._clients), AWAY_S)

    async def kill_broker(self) -> None:
        """SIGKILL, and a start."""
        await asyncio.to_thread(self._kafka.kill)
        await asyncio.to_thread(self._kafka.start)

    async def stop_broker(self) -> None:
        """SIGSTOP, and on."""
        await asyncio.to_thread(self._kafka.pause)
        await asyncio.sleep(BROKER_AWAY_S)
        self._kafka.resume()

    async def make_queue_anew(self) -> None:
        """A worker sleeps while a queue that it reads is deleted and made anew, and then does no harm:
        receipts of the old one are stale, and each new item is handed out once.
        """
        sleeper, *others = self.rng.sample(range(WORKERS), WORKERS)
        old, new = list(range(ANEW)), list(range(ANEW, 2 * ANEW))
        async with httpx.AsyncClient(timeout=10) as http:
            await self._ask(http, others[0], "PUT", "anew", {})
            await self._ask(http, others[0], "POST", "anew/items", [{"data": n, "id": str(n)} for n in old])
            receipts = []
            for worker in (sleeper, *others):
                leased = await self._ask(http, worker, "POST", "anew/lease", {"max": ANEW // 4, "wait_s": 5})
                receipts += [item["receipt"] for item in leased.json()["items"]]
            self._workers[sleeper].signal(signal.SIGSTOP)
            await self._workers[sleeper].stopped()
            await self._ask(http, others[0], "DELETE", "anew")
            await self._ask(http, others[1], "PUT", "anew", {})
            await self._ask(http, others[1], "POST", "anew/items", [{"data": n, "id": str(n)} for n in new])
            self._workers[sleeper].signal(signal.SIGCONT)
            acks = [
                await self._ask(http, worker, "POST", "anew/ack", {"receipts": receipts})
                for worker in (sleeper, *others)
            ]
            handed_out: list[int] = []
            while len(handed_out) < len(new):
                worker = (sleeper, *others)[len(handed_out) % WORKERS]
                leased = await self._ask(http, worker, "POST", "anew/lease", {"max": 7, "wait_s": 5})
                items = leased.json()["items"]
                handed_out += [item["data"] for item in items]
                if items:
                    done = {"receipts": [item["receipt"] for item in items]}
                    await self._ask(http, worker, "POST", "anew/ack", done)
            await self._ask(http, others[0], "DELETE", "anew")

        assert receipts != []
        assert [ack.status_code for ack in acks] == [409] * WORKERS
        assert sorted(handed_out) == new

    async def _ask(
        self, http: httpx.AsyncClient, worker: int, method: str, path: str, body: Any = None
    ) -> httpx.Response:
        """The worker's answer, as soon as it has seen the queue (404) and Kafka (503)."""

        async def answered() -> httpx.Response | None:
            with contextlib.suppress(httpx.TransportError):
                answer = await http.request(method, f"{self.urls[worker]}/queues/{path}", json=body)
                if answer.status_code not in ((503,) if method == "DELETE" else (404, 503)):
                    return answer
            return None

        found = await until(answered)
        assert found is not None
        return found

    async def _stop(self, service: Service, away_s: float) -> None:
        service.signal(signal.SIGSTOP)
        await service.stopped()
        await asyncio.sleep(away_s)
        service.signal(signal.SIGCONT)

    def _start_clients(self, service: Service) -> None:
        self._lives += 1
        service.start(
            QUEUE_JOURNAL=str(self._home / f"{self._lives}.journal"),
            QUEUE_CLIENTS=str(CLIENTS),
            QUEUE_SEED=str(self._lives),
        )

    async def _until_ready(self, http: httpx.AsyncClient, url: str) -> None:
        async def is_ready() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return (await http.get(f"{url}/readyz")).status_code == 200
            return False

        await until(is_ready, lambda: "\n".join(service.tail() for service in self._workers))

    async def call(self, http: httpx.AsyncClient, method: str, path: str, body: Any = None) -> Any:
        """The answer of any worker: another one is asked while there is none."""

        async def answered() -> httpx.Response | None:
            url = self.rng.choice(self.urls)
            with contextlib.suppress(httpx.TransportError):
                answer = await http.request(method, f"{url}/queues/{path}", json=body)
                if answer.status_code != 503:
                    assert answer.status_code == 200, answer.text
                    return answer
            return None

        found = await until(answered)
        assert found is not None
        return found.json()


@contextlib.asynccontextmanager
async def running(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """Everything is running, and there is a client to put with."""
    try:
        await world.start()
        async with httpx.AsyncClient(timeout=10) as http:
            yield http
    finally:
        world.end()


async def disturb(world: World, http: httpx.AsyncClient, count: int, times: int) -> None:
    """Puts a part of the items, and while they are worked on, something is killed or stopped."""
    faults = [world.faults[turn % len(world.faults)] for turn in range(times)]
    world.rng.shuffle(faults)
    for turn, fault in enumerate(faults):
        first, end = count * turn // times, count * (turn + 1) // times
        for start in range(first, end, PUT_AT_ONCE):
            items = [{"data": n, "id": str(n)} for n in range(start, min(start + PUT_AT_ONCE, end))]
            # with ids, because a put without an answer is put again
            await world.call(http, "POST", "q/items", items)
        await fault()
        world.struck[fault.__name__] += 1


async def drained(world: World, http: httpx.AsyncClient) -> list[Letter]:
    """Returns once nothing is left but dead letters."""

    async def is_empty() -> bool:
        shown = await world.call(http, "GET", "q")
        return not shown["ready"] + shown["leased"] + shown["waiting"]

    await until(is_empty, within_s=300)
    await world.end_clients()
    letters: list[Letter] = []
    while found := (await world.call(http, "POST", "q.dead/lease", {"max": 100, "lease_s": 600}))["items"]:
        for item in found:
            headers = item["headers"]
            letters.append(Letter(item["data"], int(headers["attempts"]), headers["why"]))
    return letters


@pytest.mark.parametrize(
    ("count", "times"),
    [
        pytest.param(6_000, 8, marks=pytest.mark.timeout(300)),
        pytest.param(200_000, 104, marks=[pytest.mark.soak, pytest.mark.timeout(1_800)]),
    ],
)
async def test_every_item_is_done_once_whoever_is_killed(
    kafka_server: KafkaServer, namespace: str, tmp_path: Path, count: int, times: int
) -> None:
    """Each is acked or dead, none is leased after its ack, attempts are right, any worker takes receipts."""
    world = World(kafka_server, namespace, tmp_path, f"{count} queue kills")
    async with running(world) as http:
        await disturb(world, http, count, times)
        letters = await drained(world, http)
        shown = [(await http.get(f"{url}/queues/q")).json() for url in world.urls]

    lines = list(read_journals(world.journals))
    verdict: Verdict = judge(lines, count, letters, MAX_ATTEMPTS)
    away = distance(first_handed_out(lines))
    print(dict(world.struck), dict(verdict.counts), f"mean distance out of order {away:.1f}")
    assert verdict.wrong == []
    assert away < MOST_DISTANCE
    assert verdict.counts["elsewhere"] > count / 20
    assert min(world.struck.values()) >= times // len(world.faults)
    for one in shown:
        assert (one["ready"], one["leased"], one["waiting"]) == (0, 0, 0)
