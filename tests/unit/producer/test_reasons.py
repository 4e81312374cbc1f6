"""What a producer that cannot work says to strangers, and what it logs."""

from __future__ import annotations

import asyncio
import re

import pytest

from services.producer.kafka.sink import KafkaFragmentSink
from services.producer.registration import Registration
from services.producer.settings import ProducerSettings
from shared.errors import Unavailable
from shared.kafka.admin.topics import ensure_topics
from shared.kafka.connect.cluster import Cluster
from tests.servers import free_port
from tests.unit.producer.face import Producer, assert_problem
from tests.waiting import until

ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+|localhost|\bport\b|:\d{2,}|\(.*\d{4}")


async def test_no_answer_names_an_address_and_the_log_names_it(caplog: pytest.LogCaptureFixture) -> None:
    """Neither `/readyz` nor any 503, while Kafka and ZooKeeper refuse connections."""
    kafka = f"127.0.0.1:{free_port()}"
    cluster = Cluster(kafka)
    sink = KafkaFragmentSink(cluster, ack_timeout_s=2.0, max_batch_bytes=100_000, compression="none")
    sink.set_topics(["fragments.0000"])
    running = asyncio.create_task(sink.run())
    registration = Registration(
        Refusing(kafka),  # type: ignore[arg-type]
        ProducerSettings(),
        lambda table: None,
    )
    registering = asyncio.create_task(registration.run())
    producer = Producer()
    producer.sink.send = sink.send  # type: ignore[method-assign]
    producer.sink.send_to_all = sink.send_to_all  # type: ignore[method-assign]

    async def is_noticed() -> bool:
        return "does not answer" in sink.complaint() and "cannot be reached" in registration.complaint()

    try:
        await until(is_noticed)
        producer.complaints = [sink.complaint(), registration.complaint()]
        answers = [
            await producer.post(b'{"key":"a"}'),
            await producer.client.post("/markers", json={"time": 1}),
            await producer.client.get("/readyz"),
        ]
    finally:
        for task in (running, registering):
            task.cancel()
        await asyncio.wait({running, registering})
        await cluster.close()

    for answer, kind in zip(answers, ["kafka-unavailable"] * 2 + ["not-ready"], strict=True):
        detail = assert_problem(answer, 503, kind)["detail"]
        assert "Kafka does not answer" in detail
        assert not ADDRESS.search(detail)
    logged = {record.message: str(vars(record)) for record in caplog.records}
    assert kafka in logged["kafka not connected"]
    assert kafka in logged["stream table or registration failed"]


class Refusing:
    """Znodes without a server; asking for one fails as asking Kafka does."""

    session = None

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka

    async def get(self, path: str, watch: object = None) -> None:
        """Raises KafkaUnavailable."""
        await ensure_topics(self._kafka, [], 1)
        raise AssertionError("Kafka answered")


def test_a_reason_is_the_detail_without_its_cause() -> None:
    """A cause is what a library says, so it may hold anything."""
    error = Unavailable("it does not answer", cause="('10.0.0.1', 9092)")

    assert (error.reason, error.detail) == ("it does not answer", "it does not answer: ('10.0.0.1', 9092)")
