"""How long a request waits for Kafka at most (docs/operations.md)."""

from __future__ import annotations

import asyncio

from services.producer.core.ingest import Portion
from services.producer.kafka.sink import KafkaFragmentSink
from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import Cluster
from tests.fakes.kafka_produce import ProducingKafka
from tests.fakes.sink import sent
from tests.fakes.virtual_time import until, virtual_time

ACK_TIMEOUT_S = 1.0
ANSWERS_AFTER_S = 0.9
"""Each batch alone is in time."""
REQUESTS = 9


@virtual_time
async def test_a_request_behind_others_is_answered_in_time() -> None:
    """BATON_ACK_TIMEOUT_S counts from the creation of its batch; then, what has not flown is dropped."""
    loop, broker = asyncio.get_running_loop(), ProducingKafka()
    broker.create("fragments.0000")
    cluster = Cluster("fake:1", broker.connect)
    # a batch that one record fills, as a request of BATON_MAX_BATCH_BYTES does
    sink = KafkaFragmentSink(cluster, ack_timeout_s=ACK_TIMEOUT_S, max_batch_bytes=1)
    running = asyncio.create_task(sink.run())
    sink.set_topics(["fragments.0000"])
    await until(lambda: not sink.complaint())
    await sent(sink, {0: Portion([0], [b"k"], [b"first"])})
    broker.delay_s = ANSWERS_AFTER_S

    async def request(number: int) -> tuple[float, bool]:
        began_s = loop.time()
        try:
            await sent(sink, {0: Portion([0], [b"k"], [b"%d" % number])})
        except KafkaUnavailable:
            return loop.time() - began_s, False
        return loop.time() - began_s, True

    answers = await asyncio.gather(*(request(number) for number in range(REQUESTS)))
    await asyncio.sleep(10 * REQUESTS)
    complaint, remarks = sink.complaint(), sink.remarks()
    running.cancel()
    await cluster.close()

    assert [is_stored for _, is_stored in answers] == [True] + [False] * (REQUESTS - 1)
    assert max(took_s for took_s, _ in answers) < 1.3 * ACK_TIMEOUT_S
    assert broker.values("fragments.0000") == [b"first", b"0", b"1"]
    assert (complaint, remarks) == ("", [])
