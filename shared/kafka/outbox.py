"""A queue that is sent to a topic in the background: what a member's events and a producer's rejects share.

Their owners keep the queue, because they differ in what may be lost and what may stand twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.errors import KafkaConnectionError

from shared.backoff import Backoff
from shared.errors import KafkaUnavailable


async def send_for_ever(
    wake: asyncio.Event, step: Callable[[], Awaitable[None]], on_waiting: Callable[[str], None]
) -> None:
    """Awaits `step` whenever `wake` is set, until cancelled; after KafkaUnavailable again, in a while.

    `on_waiting` hears why, once for each reason in a row. `step` clears `wake` when nothing is left to send.
    """
    backoff = Backoff(first_s=0.1, cap_s=2.0)
    told = ""
    while True:
        await wake.wait()
        try:
            await step()
        except KafkaUnavailable as error:
            if error.detail != told:
                on_waiting(error.detail)
            told = error.detail
            await asyncio.sleep(backoff.next_s())
        else:
            told = ""
            backoff.reset()


async def acknowledged(sending: asyncio.Future[Any], timeout_s: float) -> None:
    """Returns when the broker has acknowledged the batch. Raises what aiokafka does, or TimeoutError.

    It is not awaited itself: a cancellation of ours must not reach it, and that it is cancelled must not look
    like one of ours.
    """
    await asyncio.wait({sending}, timeout=timeout_s)
    if not sending.done():
        raise TimeoutError(f"no answer within {timeout_s:g} s")
    if sending.cancelled():
        raise KafkaConnectionError("the producer was closed")
    sending.result()
