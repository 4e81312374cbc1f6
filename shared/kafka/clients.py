"""How aiokafka's producer fails, and how to discard one in bounded time.

In aiokafka nothing is bounded while a broker does not respond. A producer's `stop()` waits for
acknowledgements, and its sender retries without end.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Coroutine, Iterator
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import ConsumerStoppedError, IllegalOperation, KafkaConnectionError, KafkaError

from shared.errors import KafkaUnavailable

CALL_TIMEOUT_S = 10.0
DISCARD_TIMEOUT_S = 2.0
KAFKA_FAILURES = (KafkaError, ConsumerStoppedError, IllegalOperation, TimeoutError, OSError, AssertionError)
"""What a call of aiokafka raises when the broker is down, slow or rejects a request. AssertionError: aiokafka
asserts that the cluster has a broker, which is false while the controller fences the only one.
IllegalOperation: a fenced producer complains about its own state."""


@contextlib.contextmanager
def translated(
    what: str, failures: tuple[type[Exception], ...] = KAFKA_FAILURES, *, at: str = ""
) -> Iterator[None]:
    """Raises KafkaUnavailable with the reason `what` in place of aiokafka's failures in the block.

    `at` are the addresses of Kafka: they are part of the cause only, as they are nobody else's business.
    """
    try:
        yield
    except failures as error:
        raise KafkaUnavailable(what, cause=f"{at}: {error!r}" if at else repr(error)) from error


async def discard_producer(producer: AIOKafkaProducer) -> None:
    """Stops a producer in any state and frees its resources in bounded time.

    `stop()` alone would wait for acknowledgements, and the sender would retry without end.
    """
    sender = producer._sender.sender_task
    if sender is not None:
        sender.cancel()
    # the connections first, so that the sender's requests fail instead of waiting
    await attempt(producer.client.close())
    if sender is not None:
        await asyncio.wait({sender}, timeout=DISCARD_TIMEOUT_S)
        sender.cancel()
        if sender.done() and not sender.cancelled():
            sender.exception()  # retrieved for asyncio; the callers of `send` already have the reason
    with contextlib.suppress(Exception):
        held = producer._message_accumulator
        batches = {*held._pending_batches, *itertools.chain(*held._batches.values())}
        # a batch that waits for a retry must be in `_pending_batches` to fail
        held._pending_batches.update(batches)
        held.fail_all(KafkaConnectionError("discarded"))
        for batch in batches:
            # retrieved for asyncio: nobody awaits it any more
            if batch._drain_waiter.done() and not batch._drain_waiter.cancelled():
                batch._drain_waiter.exception()
    await attempt(producer.stop())


async def attempt(call: Coroutine[Any, Any, None]) -> None:
    """Awaits a call of aiokafka for at most `DISCARD_TIMEOUT_S` and ignores its outcome.

    `asyncio.timeout` around the call would not do: some of aiokafka's tasks survive a cancellation, and the
    call would keep waiting for them. Raises nothing but a cancellation of the caller.
    """
    task = asyncio.create_task(call)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.wait({task}, timeout=DISCARD_TIMEOUT_S)
    finally:
        task.cancel()
