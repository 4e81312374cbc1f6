"""Letting go of a client of aiokafka takes a bounded time, whatever its tasks do."""

from __future__ import annotations

import asyncio

from shared.kafka.clients import DISCARD_TIMEOUT_S, attempt
from tests.fakes.virtual_time import in_virtual_time


async def stubborn() -> None:
    """Goes on after a cancellation, as a sender does that awaits its requests first."""
    while True:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            if asyncio.get_running_loop().time() > 10 * DISCARD_TIMEOUT_S:
                raise


def test_what_does_not_heed_a_cancellation_is_not_waited_for() -> None:
    """Awaiting such a task within a time-out would wait on after it."""

    async def discard() -> float:
        inner = asyncio.create_task(stubborn())

        async def stop() -> None:
            await inner

        await attempt(stop())
        ended_s = asyncio.get_running_loop().time()
        await asyncio.sleep(10 * DISCARD_TIMEOUT_S)
        inner.cancel()
        return ended_s

    assert in_virtual_time(discard) == DISCARD_TIMEOUT_S


def test_what_fails_is_over() -> None:
    """The failure of a client that is thrown away is nobody's concern."""

    async def discard() -> float:
        async def stop() -> None:
            raise OSError("gone")

        await attempt(stop())
        return asyncio.get_running_loop().time()

    assert in_virtual_time(discard) == 0.0
