"""The load of a chaos run: clients post visits over HTTP, retry, and record the answer to each fragment.

Each lane posts the fragments of its own keys, one request after another, so a key's order is that of its
numbers. A lane repeats a request with the same ids until it gets 200. It posts fragments without ids only
once, so one of those may or may not be in the log after its request failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

LANES = 8
KEYS_PER_LANE = 25
LARGEST_BATCH = 40
FLOOD_BATCH = 300
LEAP_MS = 120_000
"""More than gap and lateness of the group, so that a marker at this distance ends every session."""
WITHOUT_ID = 0.1
REPEATED = 0.02
RETRY_S = 0.2
POST_TIMEOUT_S = 30.0
"""Far above the bound within which a producer answers."""
LAST_TIME_MS = 9_000_000_000_000


@dataclass(slots=True)
class Posted:
    """One fragment: its number, its key, whether it has an id, whether it was acknowledged."""

    number: int
    key: str
    has_id: bool
    is_acknowledged: bool = False


@dataclass(slots=True)
class Ledger:
    """What the clients recorded: `fragments[n]` is number n."""

    fragments: list[Posted] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    """Number of requests by status, or by name of the error."""
    acknowledged: int = 0
    in_flight: int = 0
    """Requests that wait for their answer now."""

    def note(self, fragments: Sequence[Posted]) -> None:
        """Marks fragments as acknowledged."""
        for one in fragments:
            self.acknowledged += not one.is_acknowledged
            one.is_acknowledged = True


class Load:
    """Posts from `LANES` lanes until `finish`, at about `per_s` fragments a second, and `total` at least.

    `visitors`: how its keys begin. `batch`: fragments of its largest request.
    """

    def __init__(
        self, url: str, seed: int, per_s: float, *, visitors: str = "visitor", batch: int = LARGEST_BATCH
    ) -> None:
        self.ledger = Ledger()
        self.per_s = per_s
        self._url = url
        self._seed = seed
        self._visitors = visitors
        self._batch_size = batch
        self._floods = 0
        self._now_ms = 1_700_000_000_000
        self._total: int | None = None

    def __repr__(self) -> str:
        answers = ", ".join(f"{number} {what}" for what, number in self.ledger.answers.most_common())
        return f"{self.ledger.acknowledged} of {len(self.ledger.fragments)} acknowledged; requests: {answers}"

    def finish(self, total: int, per_s: float) -> None:
        """Posts the rest of `total` fragments at this pace, then ends with every request answered."""
        self.per_s = per_s
        self._total = total

    async def run(self) -> None:
        """Posts; returns after `finish`."""
        limits = httpx.Limits(max_connections=LANES)
        http = httpx.AsyncClient(base_url=self._url, timeout=POST_TIMEOUT_S, limits=limits)
        async with http, asyncio.TaskGroup() as tasks:
            for lane in range(LANES):
                rng = random.Random(f"{self._seed} {lane}")
                tasks.create_task(self._post(http, lane, rng), name=f"lane {lane}")

    async def flood(self, count: int) -> None:
        """Posts that many fragments, each of a key of its own, which stay open; all are acknowledged."""
        self._floods += 1
        limits = httpx.Limits(max_connections=LANES)
        http = httpx.AsyncClient(base_url=self._url, timeout=POST_TIMEOUT_S, limits=limits)
        async with http, asyncio.TaskGroup() as tasks:
            for first in range(0, count, FLOOD_BATCH):
                posted, bodies = self._flood(first, min(count, first + FLOOD_BATCH))
                tasks.create_task(self._deliver(http, posted, bodies), name=f"flood {first}")

    def _flood(self, first: int, after: int) -> tuple[list[Posted], list[dict[str, Any]]]:
        posted: list[Posted] = []
        for number in range(first, after):
            key = f"{self._visitors}-flood-{self._floods}-{number}"
            posted.append(Posted(len(self.ledger.fragments), key=key, has_id=True))
            self.ledger.fragments.append(posted[-1])
        bodies = [
            {"key": one.key, "time": self._now_ms, "id": f"f{one.number}", "data": {"n": one.number}}
            for one in posted
        ]
        return posted, bodies

    async def leap(self) -> dict[int, int]:
        """Moves event time on, past the end of every open session, by a marker: stream → its offset."""
        self._now_ms += LEAP_MS
        return await self._marked(self._now_ms)

    async def end_of_time(self) -> dict[int, int]:
        """A marker that closes every session: stream → its offset. Raises HTTPError."""
        return await self._mark(LAST_TIME_MS)

    async def _marked(self, time_ms: int) -> dict[int, int]:
        """Repeats a marker until it is written to all streams; only the last one counts."""
        while True:
            with contextlib.suppress(httpx.HTTPError):
                return await self._mark(time_ms)
            await asyncio.sleep(RETRY_S)

    async def _mark(self, time_ms: int) -> dict[int, int]:
        async with httpx.AsyncClient(base_url=self._url, timeout=POST_TIMEOUT_S) as http:
            answer = await http.post("/markers", json={"time": time_ms})
        answer.raise_for_status()
        return {row["stream"]: row["offset"] for row in answer.json()["markers"]}

    async def _post(self, http: httpx.AsyncClient, lane: int, rng: random.Random) -> None:
        due = time.monotonic()
        while self._total is None or len(self.ledger.fragments) < self._total:
            posted, bodies = self._batch(lane, rng)
            await self._deliver(http, posted, bodies)
            # the pace of the load, never faster than it to make up for an outage
            due = max(time.monotonic(), due + len(posted) * LANES / self.per_s)
            await asyncio.sleep(due - time.monotonic())

    def _batch(self, lane: int, rng: random.Random) -> tuple[list[Posted], list[dict[str, Any]]]:
        """The next fragments of a lane, some of them twice."""
        posted: list[Posted] = []
        bodies: list[dict[str, Any]] = []
        for _ in range(rng.randint(1, self._batch_size)):
            one = Posted(
                len(self.ledger.fragments),
                key=f"{self._visitors}-{lane}-{rng.randrange(KEYS_PER_LANE)}",
                has_id=rng.random() >= WITHOUT_ID,
            )
            self.ledger.fragments.append(one)
            posted.append(one)
            self._now_ms += rng.randrange(200)
            body = {
                "key": one.key,
                "time": self._now_ms - rng.randrange(3000),
                "end": rng.random() < 0.05,
                "data": {"n": one.number, "x": "x" * rng.choice((5, 50, 500))},
            }
            bodies.append(body | ({"id": f"f{one.number}"} if one.has_id else {}))
            if one.has_id and rng.random() < REPEATED:
                posted.append(one)
                bodies.append(bodies[-1])
        return posted, bodies

    async def _deliver(
        self, http: httpx.AsyncClient, posted: list[Posted], bodies: list[dict[str, Any]]
    ) -> None:
        """Returns when all fragments with ids are acknowledged."""
        while posted:
            unstored = await self._try(http, bodies)
            self.ledger.note([one for index, one in enumerate(posted) if index not in unstored])
            if not unstored:
                return
            again = [index for index, one in enumerate(posted) if one.has_id]
            posted, bodies = [posted[index] for index in again], [bodies[index] for index in again]
            await asyncio.sleep(RETRY_S)

    async def _try(self, http: httpx.AsyncClient, bodies: list[dict[str, Any]]) -> set[int]:
        """Posts once; the indexes that were not acknowledged."""
        self.ledger.in_flight += 1
        try:
            answer = await http.post("/fragments", json=bodies)
        except httpx.TransportError as error:
            self.ledger.answers[type(error).__name__] += 1
            return set(range(len(bodies)))
        finally:
            self.ledger.in_flight -= 1
        self.ledger.answers[str(answer.status_code)] += 1
        if answer.status_code == 200:
            assert answer.json() == {"accepted": len(bodies), "rejected": []}, answer.text
            return set()
        assert answer.status_code in (429, 503), answer.text
        return set(answer.json().get("unstored", range(len(bodies))))
