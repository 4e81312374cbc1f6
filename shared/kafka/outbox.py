"""Sends a queue to a topic in the background: shared by a member's events and a producer's rejects.

The callers own their queues, because they differ in which records may be lost or duplicated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError

from shared.backoff import Backoff
from shared.errors import KafkaUnavailable
from shared.kafka.clients import CALL_TIMEOUT_S, discard_producer

FLUSH_TIMEOUT_S = 2.0
"""How long a stopping process may wait for what is still queued."""


async def outbox_producer(kafka: str, topic: str, *, batch_bytes: int) -> AIOKafkaProducer:
    """A started idempotent producer that knows the topic. Raises what aiokafka raises, and TimeoutError."""
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka,
        acks="all",
        enable_idempotence=True,
        linger_ms=0,
        max_batch_size=batch_bytes,
        request_timeout_ms=int(CALL_TIMEOUT_S * 1000),
        retry_backoff_ms=50,
    )
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            await producer.start()
            await producer.partitions_for(topic)
    except BaseException:
        await discard_producer(producer)
        raise
    return producer


async def run_outbox(
    wake: asyncio.Event, step: Callable[[], Awaitable[None]], on_waiting: Callable[[str], None]
) -> None:
    """Runs `step` whenever `wake` is set, until cancelled; retries with back-off after KafkaUnavailable.

    `step` clears `wake` when nothing is left to send. `on_waiting` gets the reason of an outage, once until
    the reason changes.
    """
    backoff = Backoff(first_s=0.1, cap_s=2.0)
    reported = ""
    while True:
        await wake.wait()
        try:
            await step()
        except KafkaUnavailable as error:
            if error.detail != reported:
                on_waiting(error.detail)
            reported = error.detail
            await asyncio.sleep(backoff.next_s())
        else:
            reported = ""
            backoff.reset()


async def wait_for_ack(sending: asyncio.Future[Any], timeout_s: float) -> None:
    """Returns when the broker has acknowledged the batch. Raises aiokafka's error, or TimeoutError.

    It does not await the future directly: our cancellation must not cancel the batch, and a cancelled batch
    must not look like our cancellation.
    """
    # `asyncio.wait` leaves the future alone when we are cancelled or run out of time
    await asyncio.wait({sending}, timeout=timeout_s)
    if not sending.done():
        raise TimeoutError(f"no answer within {timeout_s:g} s")
    if sending.cancelled():
        raise KafkaConnectionError("the producer was closed")
    sending.result()
