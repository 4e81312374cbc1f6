"""A stop that does not wait any longer: each request that it ends gets an answer that asks for a retry."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.unit.producer.wire import Stalled, request, serving
from tests.waiting import DEADLINE_S

FRAGMENT = b'{"key":"visitor-1"}'
WAITS_FOR_KAFKA = request(FRAGMENT)
WRITES_MARKERS = request(b'{"time":1}', path="/markers")
SENDS_SLOWLY = request(FRAGMENT)[:-1]
STOP_GRACE_S = 0.05


@pytest.mark.parametrize(
    "posted",
    [[WAITS_FOR_KAFKA], [WRITES_MARKERS], [SENDS_SLOWLY], [WAITS_FOR_KAFKA] * 3],
    ids=["waits for kafka", "writes markers", "sends slowly", "pipelined"],
)
async def test_a_request_that_a_stop_cancels_gets_a_503(
    posted: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """It names a time to retry, and nothing counts as stored; clients need not retry after a 500."""
    sink = Stalled()
    async with contextlib.AsyncExitStack() as clients:
        async with serving(sink=sink, stop_grace_s=STOP_GRACE_S) as server:
            client = await clients.enter_async_context(server.connection())
            client.send(*posted)
            async with asyncio.timeout(DEADLINE_S):
                while not server.door.inflight_bytes and not sink.waiting.is_set():  # noqa: ASYNC110
                    await asyncio.sleep(0.002)

        answers = [await client.answer() for _ in posted]
        assert await client.rest() == b""

    found = [(one.status, one.headers["retry-after"], one.body["type"]) for one in answers]
    assert found == [(503, "1", "urn:baton:leaving")] * len(posted)
    assert server.metrics.refused["leaving"] == len(posted)
    assert server.metrics.stored == server.door.inflight_bytes == 0
    assert [record.message for record in caplog.records if "Exception" in record.message] == []
