"""Workers of a queue are killed and stopped under load: nothing is lost, and nobody gets what is done.

`make soak` runs it with 200,000 items and a hundred kills.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import pytest

from tests.integration.test_queue_service import QueueProcess
from tests.waiting import until

WORKERS = 3
CLIENTS = 30
LEASE_S = 3


@dataclass(slots=True)
class Ledger:
    """What clients saw, by the number in the item's data."""

    rng: random.Random
    count: int
    urls: list[str]
    acked: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)
    attempts: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)
    elsewhere: int = 0
    """Receipts that were used at another worker than that of the lease."""

    @property
    def done(self) -> int:
        """How many items are done."""
        return len(self.acked | self.rejected)


async def call(http: httpx.AsyncClient, ledger: Ledger, path: str, body: Any) -> tuple[str, httpx.Response]:
    """The answer of any worker that is there, and that worker. Without an answer, another one is asked."""
    while True:
        url = ledger.rng.choice(ledger.urls)
        with contextlib.suppress(httpx.TransportError):
            answer = await http.post(f"{url}/queues/q/{path}", json=body)
            if answer.status_code != 503:
                return url, answer
        await asyncio.sleep(0.05)


async def client(http: httpx.AsyncClient, ledger: Ledger, ended: asyncio.Event) -> None:
    """Leases, and mostly acks: sometimes it forgets what it has, gives it back, or rejects it."""
    while not ended.is_set():
        url, answer = await call(http, ledger, "lease", {"max": 5, "wait_s": 1, "lease_s": LEASE_S})
        items = answer.json()["items"]
        for item in items:
            n, attempt = item["data"], item["attempt"]
            if n in ledger.acked or n in ledger.rejected:
                ledger.wrong.append(f"{n} was done and is handed out")
            if ledger.attempts[n] and ledger.attempts[n][-1] >= attempt:
                ledger.wrong.append(f"{n}: attempt {attempt} after {ledger.attempts[n]}")
            ledger.attempts[n].append(attempt)
        what = ledger.rng.choices(["ack", "forget", "release", "reject"], [90, 4, 4, 2])[0]
        if not items or what == "forget":
            continue
        receipts = [item["receipt"] for item in items]
        where, answer = await call(http, ledger, what, {"receipts": receipts})
        ledger.elsewhere += where != url
        stale = set(range(len(items))) if answer.status_code == 409 else set(answer.json()["stale"])
        done = {item["data"] for index, item in enumerate(items) if index not in stale}
        if what != "release":
            (ledger.acked if what == "ack" else ledger.rejected).update(done)


def is_done(ledger: Ledger, least: float) -> bool:
    """Whether so many items are done."""
    return ledger.done >= least


async def disturb(http: httpx.AsyncClient, ledger: Ledger, processes: list[QueueProcess], times: int) -> None:
    """Puts a part of the items, and while they are worked on kills a worker, or stops it past its leases."""
    part = ledger.count // times
    for turn in range(times):
        end = ledger.count if turn == times - 1 else (turn + 1) * part
        for first in range(turn * part, end, 1_000):
            items = [{"data": n, "id": str(n)} for n in range(first, min(first + 1_000, end))]
            # with ids, because a put without an answer is put again
            await call(http, ledger, "items", items)
        process = ledger.rng.choice(processes)
        await until(partial(is_done, ledger, ledger.rng.uniform(turn, turn + 0.5) * part))
        if ledger.rng.random() < 0.7:
            await process.kill()
            await process.start()
        else:
            process.pause()
            await asyncio.sleep(LEASE_S + 1)
            process.resume()


@pytest.mark.parametrize(
    ("count", "kills"),
    [
        pytest.param(3_000, 6, marks=pytest.mark.timeout(300)),
        pytest.param(200_000, 100, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)]),
    ],
)
async def test_every_item_is_done_once_whoever_is_killed(
    kafka: str, namespace: str, count: int, kills: int
) -> None:
    """Every item is acked or dead, none is leased after its ack, attempts grow, any worker takes receipts."""
    rng = random.Random(f"{count} queue kills")
    processes = [QueueProcess(kafka, namespace) for _ in range(WORKERS)]
    ledger = Ledger(rng, count, [process.url for process in processes])
    async with contextlib.AsyncExitStack() as stack, httpx.AsyncClient(timeout=10) as http:
        for process in processes:
            stack.push_async_callback(process.kill)
            await process.start()
        await http.put(f"{ledger.urls[0]}/queues/q", json={"max_attempts": 50})
        ended = asyncio.Event()
        clients = [asyncio.create_task(client(http, ledger, ended)) for _ in range(CLIENTS)]
        await disturb(http, ledger, processes, kills)
        await until(partial(is_done, ledger, count), lambda: f"{ledger.done} of {count}", 3_000)
        ended.set()
        await asyncio.gather(*clients)
        shown = [(await http.get(f"{url}/queues/q")).json() for url in ledger.urls]

    assert ledger.wrong == []
    assert ledger.acked | ledger.rejected == set(range(count))
    assert ledger.elsewhere > count / 20
    for one in shown:
        assert (one["ready"], one["leased"], one["waiting"]) == (0, 0, 0)
        assert one["dead"] >= len(ledger.rejected - ledger.acked)
