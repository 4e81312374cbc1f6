"""What a drain costs each stream of a stack as `baton up` starts it: two consumers, 12 streams, all defaults.

The stack, its servers and the load, which comes over HTTP, share the machine. All streams are on the
consumer that gets SIGTERM; it starts again, and then the other one drains. The pauses are those of the events
in `baton.events`, from the donor's last record to the recipient's first: nothing in the stack is observed.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import httpx

from bench.group import DEADLINE_S, LOOK_S, follow_events, now_ms, running_streams, set_pins, start_steady
from bench.report import Row
from cli.stack.local.stack import LocalStack
from cli.stack.options import StackOptions
from shared.model.events import Event
from shared.model.names import Names
from shared.zookeeper.connection import ZooKeeper
from tests.servers import free_port_offset

STREAMS, RATE = 12, 1_500.0
OPEN_BYTES = 400_000
"""Of the fragments in each stream's open sessions."""
DRAINS = 5
SETTLED_S = 4.0
"""By then a consumer that has started again takes part in everything."""


class Stack:
    """The running stack under load, as an async context manager."""

    def __init__(self, stack: LocalStack) -> None:
        self.stack, self.names = stack, Names(stack.options.namespace)
        self.events: list[Event] = []
        self._znodes = ZooKeeper(stack.options.zookeeper_address, 6.0)
        self._client = httpx.AsyncClient(timeout=5)
        self._leaving = contextlib.AsyncExitStack()

    def __repr__(self) -> str:
        return f"<Stack {self.stack!r}>"

    async def __aenter__(self) -> Self:
        await self._leaving.enter_async_context(self._znodes)
        await self._leaving.enter_async_context(self._client)
        await self._znodes.connect(10)
        events = follow_events(self.stack.options.kafka_address, self.names, self.events.append)
        self._leaving.callback(asyncio.create_task(events, name="events").cancel)
        load = start_steady(self.stack.producer_url, self.names, RATE, [OPEN_BYTES] * STREAMS)
        self._leaving.callback(load.wait)
        self._leaving.callback(load.kill)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leaving.aclose()

    async def gather_on(self, index: int) -> None:
        """Returns when the consumer runs all streams and has read nearly everything."""
        await set_pins(self._znodes, self.names, dict.fromkeys(range(STREAMS), f"consumer-{index}"))
        address = self.stack.options.url_of(self.stack.options.consumer_port(index))

        def is_settled(row: dict[str, Any]) -> bool:
            return bool(row["state_bytes"] > 0.7 * OPEN_BYTES and row["end"] - row["position"] < 500)

        async with asyncio.timeout(DEADLINE_S):
            while sum(map(is_settled, await running_streams(self._client, address))) < STREAMS:
                await asyncio.sleep(LOOK_S)

    async def drain(self, index: int) -> tuple[list[Event], float]:
        """The handovers of a drain by SIGTERM, and the seconds until the process is gone."""
        since, began_ms = len(self.events), now_ms()
        await self.stack.stop_consumer(index)
        took_s = (now_ms() - began_ms) / 1000
        await asyncio.sleep(2)  # so that the last event has come
        return [event for event in self.events[since:] if event.kind == "handover"], took_s


@contextlib.asynccontextmanager
async def stack_under_load() -> AsyncIterator[Stack]:
    """A stack of its own folder and ports, otherwise with the defaults of `baton up`."""
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as home:
        options = StackOptions(home=Path(home), port_offset=free_port_offset(), consumers=2, streams=STREAMS)
        async with LocalStack(options) as local, Stack(local) as stack:
            yield stack


async def measure() -> list[Row]:
    """Drains of both consumers, one after the other."""
    pauses: list[float] = []
    longest: list[float] = []
    seconds: list[float] = []
    warm = 0
    async with stack_under_load() as stack:
        await stack.gather_on(0)
        for turn in range(DRAINS):
            leaving, staying = turn % 2, (turn + 1) % 2
            await asyncio.sleep(SETTLED_S)
            handovers, took_s = await stack.drain(leaving)
            found = [event.pause_ms or 0.0 for event in handovers]
            pauses += found
            longest.append(max(found))
            seconds.append(took_s)
            warm += sum(event.warm is True for event in handovers)
            await stack.gather_on(staying)  # pinned first: else some would go back
            await stack.stack.add_consumer()
    name = f"drain of a stack, {len(pauses)} streams of {OPEN_BYTES / 1e6:g} MB, {DRAINS} times {STREAMS}"
    return [
        _row(f"{name}: pause of a stream ({warm} warm)", "ms", pauses, "median ≤ 60"),
        _row("the same, longest of each drain", "ms", longest, "≤ 150"),
        _row("the same, from SIGTERM until the process is gone", "s", seconds),
    ]


def _row(name: str, unit: str, values: list[float], target: str = "") -> Row:
    return Row(name=name, unit=unit, baton=values, baseline=[], target=target)


def run() -> list[Row]:
    """Takes about 2 minutes."""
    return asyncio.run(measure())
