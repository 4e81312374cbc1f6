"""How aiokafka's clients fail, and how they end: every call here returns in bounded time.

Nothing in aiokafka is bounded while a broker is mute. `stop()` of a producer waits for acknowledgements, and
its sender retries without end. `stop()` of a consumer waits for its own tasks; where one of them is only
waiting to fetch again, it ends with that task's CancelledError, which looks to the caller like a cancellation
of its own and leaves the connections open.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import ConsumerStoppedError, IllegalOperation, KafkaConnectionError, KafkaError

CALL_TIMEOUT_S = 10.0
DISCARD_TIMEOUT_S = 2.0
KAFKA_FAILURES = (KafkaError, ConsumerStoppedError, IllegalOperation, TimeoutError, OSError, AssertionError)
"""What a call of aiokafka raises when the broker is away, slow or refuses. It asserts, for instance, that the
cluster has a broker, which it has not while its only one is shut out by the controller; and once fenced, a
producer complains of its own state."""


async def discard_consumer(consumer: AIOKafkaConsumer) -> None:
    """Ends the consumer and frees what it holds; in bounded time, and raising nothing but a cancellation."""
    await attempt(consumer.stop())
    await attempt(consumer._client.close())


async def discard_producer(producer: AIOKafkaProducer) -> None:
    """Ends a producer and frees what it holds, whatever state it is in, in bounded time.

    `stop()` alone waits for acknowledgements without bound, and its sender goes on retrying for ever.
    """
    sender = producer._sender.sender_task
    if sender is not None:
        sender.cancel()
    await attempt(producer.client.close())
    if sender is not None:
        await asyncio.wait({sender}, timeout=DISCARD_TIMEOUT_S)
        sender.cancel()
        if sender.done() and not sender.cancelled():
            sender.exception()  # why it died was told to the ones who sent
    with contextlib.suppress(Exception):
        held = producer._message_accumulator
        batches = {*held._pending_batches, *itertools.chain(*held._batches.values())}
        # the end of a batch that was to be sent again looks for it there
        held._pending_batches.update(batches)
        held.fail_all(KafkaConnectionError("discarded"))
        for batch in batches:
            # nobody waits for its turn to be sent any more
            if batch._drain_waiter.done() and not batch._drain_waiter.cancelled():
                batch._drain_waiter.exception()
    await attempt(producer.stop())


async def attempt(call: Coroutine[Any, Any, None]) -> None:
    """Awaits a call of aiokafka's for `DISCARD_TIMEOUT_S` at most, whatever becomes of it.

    A bound around the call itself is none: some of its tasks go on after a cancellation, and awaiting one of
    them then waits on. Raises nothing but a cancellation of the caller.
    """
    task = asyncio.create_task(call)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.wait({task}, timeout=DISCARD_TIMEOUT_S)
    finally:
        task.cancel()
