"""The one way in which a Kafka consumer ends, whatever state it and the broker are in.

`stop()` of aiokafka waits for its own tasks without bound; and where one of them just waits to fetch again,
because the broker is away, it ends with that task's CancelledError, which to the caller looks like a
cancellation of its own and leaves the connections open.
"""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer

from shared.kafka import attempt


async def discard_consumer(consumer: AIOKafkaConsumer) -> None:
    """Ends the consumer and frees what it holds; in bounded time, and raising nothing but a cancellation."""
    await attempt(consumer.stop())
    await attempt(consumer._client.close())
