"""Clients of the front door that retry forever: each posts one batch after another until it gets its 200.

A client posts a refused batch, or one whose answer was lost, again with the same ids. It records each answer
and its latency, so a test can check when fragments were refused, and how fast.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass

HOST = "127.0.0.1"
ANSWER_S = 60.0
"""Far above the bound within which a producer answers."""
LOST_RETRY_S = 0.2
"""When to retry after a lost answer; otherwise Retry-After decides."""
FRAGMENT_BYTES = 1_000
WINDOW_S = 0.25
"""The window of a rate."""


@dataclass(frozen=True, slots=True)
class Answer:
    """When it came (monotonic), what it was (0: none came), how long it took, fragments acknowledged."""

    at_s: float
    status: int
    took_s: float
    fragments: int


class Clients:
    """`count` clients of the producer at a port; `run` posts until `is_over` is set."""

    def __init__(self, port: int, count: int, batch: int) -> None:
        self.answers: list[Answer] = []
        self.acknowledged: set[str] = set()
        self.is_over = False
        self._port = port
        self._count = count
        self.batch = batch

    def __repr__(self) -> str:
        return f"<{self._count} clients, {len(self.acknowledged)} fragments acknowledged>"

    async def run(self) -> None:
        """Posts; returns when it is over and every batch that was begun is acknowledged."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._count):
                tasks.create_task(self._client(number), name=f"client {number}")

    def since(self, at_s: float, until_s: float = float("inf")) -> list[Answer]:
        """The answers that came between these two."""
        return [answer for answer in self.answers if at_s <= answer.at_s < until_s]

    async def _client(self, number: int) -> None:
        connection = _Connection(self._port)
        turn = 0
        while not self.is_over:
            ids = [f"{number}-{turn}-{place}" for place in range(self.batch)]
            body = _body(number, ids)
            retry_after_s = await self._post(connection, body)
            while retry_after_s is not None:
                await asyncio.sleep(retry_after_s)
                retry_after_s = await self._post(connection, body)
            self.acknowledged.update(ids)
            turn += 1
        await connection.close()

    async def _post(self, connection: _Connection, body: bytes) -> float | None:
        """None when it was acknowledged, else when to try again."""
        began_s = time.monotonic()
        status, retry_after_s, answer = await connection.post(body)
        now_s = time.monotonic()
        self.answers.append(Answer(now_s, status, now_s - began_s, self.batch if status == 200 else 0))
        assert status in (0, 200, 429, 503), answer
        assert status != 200 or json.loads(answer) == {"accepted": self.batch, "rejected": []}, answer
        return None if status == 200 else retry_after_s


def tale(clients: Clients, began_s: float, ended_s: float) -> str:
    """What the clients saw of an outage between these two: rates, refusals, when the rate was there again."""
    refused = clients.since(began_s + WINDOW_S, ended_s)
    parts = []
    for status in sorted({one.status for one in refused}):
        times = sorted(one.took_s for one in refused if one.status == status)
        median_s = times[len(times) // 2]
        parts.append(f"{len(times):,} × {status} after {median_s:.3f} s (at most {times[-1]:.2f} s)")
    before = rate(clients.since(began_s - 4 * WINDOW_S, began_s), 4 * WINDOW_S)
    first_s = min(one.at_s for one in clients.since(ended_s) if one.status == 200) - ended_s
    return (
        f"{before:,.0f} fragments/s before; during {ended_s - began_s:.0f} s: {', '.join(parts)}; "
        f"first 200 {first_s:.2f} s after, "
        f"90 % of the rate again {again(clients, ended_s, 0.9 * before)} after"
    )


def again(clients: Clients, ended_s: float, target: float) -> str:
    """How long after `ended_s` the rate reached `target` fragments a second again."""
    until_s = ended_s
    while until_s < clients.answers[-1].at_s:
        until_s += WINDOW_S / 5
        if rate(clients.since(until_s - WINDOW_S, until_s), WINDOW_S) >= target:
            return f"{until_s - ended_s:.2f} s"
    return "never"


def rate(answers: list[Answer], seconds: float) -> float:
    """Fragments acknowledged a second."""
    return sum(one.fragments for one in answers) / seconds


class _Connection:
    """One kept connection, made anew when it was lost."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes) -> tuple[int, float, bytes]:
        """Status, Retry-After and body of the answer; status 0 when there was none."""
        try:
            async with asyncio.timeout(ANSWER_S):
                if self._streams is None:
                    self._streams = await asyncio.open_connection(HOST, self._port)
                return await self._ask(*self._streams, body)
        except (OSError, EOFError):
            await self.close()
            return 0, LOST_RETRY_S, b""

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes
    ) -> tuple[int, float, bytes]:
        head = (
            f"POST /fragments HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        head_lines = (await reader.readuntil(b"\r\n\r\n")).lower().decode()
        answer = await reader.readexactly(int(_header(head_lines, "content-length")))
        if _header(head_lines, "connection") == "close":
            await self.close()
        return int(head_lines.split(" ", 2)[1]), float(_header(head_lines, "retry-after") or 0), answer

    async def close(self) -> None:
        """Closes the connection, if there is one."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()
            with contextlib.suppress(OSError):
                await streams[1].wait_closed()


def _header(head: str, name: str) -> str:
    return head.partition(f"\r\n{name}: ")[2].partition("\r\n")[0]


def _body(number: int, ids: Iterable[str]) -> bytes:
    fragments = [
        json.dumps({"key": f"visitor-{number}-{place % 5}", "id": id_, "data": "x" * FRAGMENT_BYTES})
        for place, id_ in enumerate(ids)
    ]
    return f"[{','.join(fragments)}]".encode()
