"""Clients of a queue in a process of their own, so that they can be killed and stopped; they keep a journal.

`python -m tests.e2e.queue_clients` reads `QUEUE_URLS` (separated by blanks), `QUEUE_JOURNAL`, `QUEUE_CLIENTS`
and `QUEUE_SEED`, and works until SIGTERM. A line of the journal is written before what it says can be
forgotten: that items were got before anything is done with them, that they are settled before it is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from typing import Any, Literal

import httpx
import msgspec

LEASE_S = 3
MOST = 10
PAUSE_S = 0.05


class Line(msgspec.Struct, frozen=True, array_like=True):
    """What a client did at `at_s`: the machine's clock that never goes back, the same for all processes.

    `got`: items of a lease that was asked for at `at_s`. `asked`: they are to be settled so. `done`: the
    answer said so; `elsewhere`: another worker's than that of the lease. `refused`: the answer said that
    their receipts are stale. What was asked and is neither has had no answer.
    """

    what: Literal["got", "asked", "done", "refused"]
    how: str
    at_s: float
    items: list[tuple[int, int]]
    """Number and attempt of each item."""
    elsewhere: bool = False


class Clients:
    """`work` is one client."""

    def __init__(self, urls: list[str], journal: int, seed: str) -> None:
        self._urls, self._journal = urls, journal
        self._rng = random.Random(seed)
        self._http = httpx.AsyncClient(timeout=10)
        self.ended = asyncio.Event()

    async def work(self) -> None:
        """Leases, and mostly acks: sometimes it forgets what it has, gives it back, or rejects it."""
        while not self.ended.is_set():
            asked_s = time.monotonic()
            body = {"max": MOST, "wait_s": 1, "lease_s": LEASE_S}
            url, answer = await self._call("lease", body)
            found = answer.json()["items"] if answer is not None else []
            items = [(item["data"], item["attempt"]) for item in found]
            if not items:
                continue
            self._write("got", "lease", asked_s, items)
            how = self._rng.choices(["ack", "forget", "release", "reject"], [90, 4, 4, 2])[0]
            if how == "forget":
                continue
            self._write("asked", how, time.monotonic(), items)
            where, answer = await self._call(how, {"receipts": [item["receipt"] for item in found]})
            if answer is None:
                continue
            is_refused = answer.status_code == 409
            stale = set(range(len(items)) if is_refused else answer.json()["stale"])
            done = [item for index, item in enumerate(items) if index not in stale]
            refused = [item for index, item in enumerate(items) if index in stale]
            self._write("done", how, time.monotonic(), done, elsewhere=where != url)
            self._write("refused", how, time.monotonic(), refused)

    async def _call(self, path: str, body: Any) -> tuple[str, httpx.Response | None]:
        """The answer of any worker that is there, and that worker; another one is asked if there is none."""
        while True:
            url = self._rng.choice(self._urls)
            with contextlib.suppress(httpx.TransportError):
                answer = await self._http.post(f"{url}/queues/q/{path}", json=body)
                if answer.status_code != 503:
                    assert answer.status_code in (200, 409), answer.text
                    return url, answer
            # a lease without an answer is asked for anew, so that the journal knows when
            if path == "lease":
                await asyncio.sleep(PAUSE_S)
                return url, None
            await asyncio.sleep(PAUSE_S)

    def _write(
        self,
        what: Literal["got", "asked", "done", "refused"],
        how: str,
        at_s: float,
        items: list[tuple[int, int]],
        *,
        elsewhere: bool = False,
    ) -> None:
        line = msgspec.json.encode(Line(what, how, at_s, items, elsewhere))
        os.write(self._journal, line + b"\n")  # at once: the process may be killed the next moment


async def main() -> None:
    """Works until SIGTERM."""
    journal = os.open(os.environ["QUEUE_JOURNAL"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    clients = Clients(os.environ["QUEUE_URLS"].split(), journal, os.environ["QUEUE_SEED"])
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, clients.ended.set)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(int(os.environ["QUEUE_CLIENTS"])):
            tasks.create_task(clients.work())


if __name__ == "__main__":
    asyncio.run(main())
