"""Discarding a consumer takes bounded time and never disturbs the caller."""

from __future__ import annotations

import asyncio

import pytest

from shared.kafka import clients as kafka
from shared.kafka.clients import discard_consumer


class StubbornConsumer:
    """Stops as aiokafka's consumer does in the worst case; it is its own client."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.is_closed = False
        self._client = self

    async def stop(self) -> None:
        if self.how == "as if cancelled":
            raise asyncio.CancelledError
        if self.how == "with an error":
            raise OSError("reset")
        while self.how == "never":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.is_closed:
                    raise

    async def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("how", ["well", "as if cancelled", "with an error"])
async def test_however_a_consumer_stops_its_connections_are_closed(how: str) -> None:
    """A cancellation or error of its own tasks does not reach the caller."""
    consumer = StubbornConsumer(how)

    await discard_consumer(consumer)

    assert consumer.is_closed


async def test_a_consumer_that_does_not_stop_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even one that ignores its cancellation, which `asyncio.timeout` would wait for."""
    monkeypatch.setattr(kafka, "DISCARD_TIMEOUT_S", 0.01)
    consumer = StubbornConsumer("never")
    before = asyncio.all_tasks()

    async with asyncio.timeout(5):
        await discard_consumer(consumer)

    assert consumer.is_closed
    (left,) = asyncio.all_tasks() - before
    left.cancel()
    await asyncio.wait({left})
