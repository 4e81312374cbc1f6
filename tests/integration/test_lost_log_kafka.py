"""Lost logs on a real broker: what its readers show, and what becomes of a stream."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import pytest

from services.consumer.adapters.kafka.log import KafkaStreamLog
from services.consumer.adapters.kafka.source import KafkaFragmentReader
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.stream.context import Claimed, GroupContext
from services.consumer.stream.worker import StreamWorker
from services.control.adapters.topics.rewinds import KafkaRewinds
from shared.model.names import Names
from tests.integration.kafka_log_ground import delivered
from tests.integration.kafka_operator import KafkaOperator
from tests.log_contract import SETTINGS, fragment
from tests.lost_log_contract import LostLogContract, Operator, appended
from tests.topics import Append


@contextlib.asynccontextmanager
async def running(
    log: KafkaStreamLog, epoch: int, lease_alive: Callable[[], bool] = lambda: True
) -> AsyncIterator[StreamWorker]:
    """A worker of stream 0, which is stopped at the end of the block."""

    async def is_mine() -> bool:
        return True

    context = GroupContext(
        group="default",
        settings=SETTINGS,
        limits=StreamLimits(commit_s=0.1),
        log=log,
        now_s=asyncio.get_running_loop().time,
        wall_ms=lambda: int(time.time() * 1000),
    )
    claimed = Claimed(is_mine=is_mine, lease_alive=lease_alive, commit_s=0.1)
    worker = StreamWorker(0, epoch, context, claimed)
    ending = asyncio.ensure_future(worker.run())
    yield worker
    worker.stop()
    assert await ending == "stopped"


async def until_stored(worker: StreamWorker, position: int) -> None:
    async with asyncio.timeout(30):
        while worker.core is None or worker.core.head.position < position:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.02)


@pytest.fixture
def operator(kafka: str, names: Names) -> Operator:
    return KafkaOperator(kafka, names)


class TestLostKafkaLog(LostLogContract):
    """The contract on a real broker."""


async def test_a_reader_repeats_the_last_record_after_each_reconnection_and_only_then(
    kafka: str, names: Names, append: Append
) -> None:
    """Another connection may lead to another broker, with another log. As long as it lasts, none is asked."""
    log = KafkaStreamLog(kafka, names, "default", SETTINGS, 2)
    reader = log.reader(0)
    assert isinstance(reader, KafkaFragmentReader)
    await reader.bounds()
    await reader.open(0)
    found: list[list[int]] = []
    for n in range(9):
        if n in (3, 6):
            for channel in log._shared.cluster._channels.values():
                assert channel._live is not None
                channel._live.connection.close()
        await append(0, b"k", fragment("k"))
        batch: list[int] = []
        while not batch or batch[-1] < n:
            batch += [record.offset for record in await reader.fetch(5.0)]
        found.append(batch)

    assert [batch for n, batch in enumerate(found) if n in (3, 6)] == [[2, 3], [5, 6]]
    # the metadata of the topic may arrive after the first records
    assert sum(map(len, found)) <= 9 + 2 + 1
    await reader.close()
    await log.close()


async def test_a_stream_that_stops_leaves_its_head_where_a_rewind_finds_it(
    kafka: str, names: Names, append: Append, operator: Operator
) -> None:
    """Kafka drops the committed offset with the topic. The owner has not opened the stream again: its lease
    was over while the log was lost, and grew beyond where it had been read to."""
    log = KafkaStreamLog(kafka, names, "default", SETTINGS, 2)
    has_lease = True
    await appended(append, 4)
    async with running(log, epoch=1, lease_alive=lambda: has_lease) as worker:
        await until_stored(worker, 4)
        has_lease = False
        await appended(append, 1)  # it is fetched, and not committed
        await operator.lose_end(0, 0)
        await appended(append, 9)
        has_lease = True
        async with asyncio.timeout(30):
            await worker.rewound.wait()
        async with KafkaRewinds(kafka, names) as source:
            found = (await source.facts("default", {0: None}, None))[0]
    await log.close()

    assert (found.unreadable, found.log) == ("", "anew")
    assert found.head is not None
    assert found.head.position >= 4


async def test_a_topic_that_was_created_anew_stops_its_stream_until_it_is_started_over(
    kafka: str, names: Names, append: Append, operator: Operator
) -> None:
    """Kafka drops the committed offset with the topic, but the checkpoints still have the head."""
    log = KafkaStreamLog(kafka, names, "default", SETTINGS, 2)
    await appended(append, 4)
    async with running(log, epoch=1) as worker:
        await until_stored(worker, 4)
    await operator.lose_end(0, 2)
    await appended(append, 5)
    async with running(log, epoch=2) as worker, asyncio.timeout(30):
        await worker.rewound.wait()
    why = worker.retries.why
    await operator.start_over(0)
    async with running(log, epoch=3) as worker:
        await until_stored(worker, 7)
    await log.close()

    sessions = await delivered(kafka, names, 0, 11)
    assert why.startswith("the record at 3 was appended at")
    assert [(session.epoch, session.first_offset) for session in sessions] == [
        *((1, n) for n in range(4)),
        *((3, n) for n in range(7)),
    ]
    assert len({session.id for session in sessions}) == 11
    assert [session.log > 0 for session in sessions] == [False] * 4 + [True] * 7
