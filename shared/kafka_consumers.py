"""The one way in which a Kafka consumer ends, whatever state it and the broker are in.

`stop()` of aiokafka waits for its own tasks without bound; and where one of them just waits to fetch again,
because the broker is away, it ends with that task's CancelledError, which to the caller looks like a
cancellation of its own and leaves the connections open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from aiokafka import AIOKafkaConsumer

DISCARD_TIMEOUT_S = 2.0


async def discard_consumer(consumer: AIOKafkaConsumer) -> None:
    """Ends the consumer and frees what it holds; in bounded time, and raising nothing but a cancellation."""
    await _attempt(consumer.stop())
    await _attempt(consumer._client.close())


async def _attempt(call: Awaitable[None]) -> None:
    task = asyncio.ensure_future(call)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.wait({task}, timeout=DISCARD_TIMEOUT_S)
    finally:
        task.cancel()
