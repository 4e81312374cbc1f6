"""Real clients start with the broker list of another client and work like any other."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from services.consumer.adapters.kafka.brokers import KnownBrokers
from shared.kafka.clients import discard_consumer, discard_producer
from shared.kafka.topics import ensure_topics, fragments_topics
from shared.model.names import Names


async def test_clients_with_a_borrowed_broker_list_write_and_read(kafka: str, namespace: str) -> None:
    """Of two producers and a consumer only the first requests it; this depends on internals of aiokafka."""
    names, known = Names(namespace), KnownBrokers()
    await ensure_topics(kafka, fragments_topics(names, 1, 604_800_000), 1)
    where = TopicPartition(names.fragments(0), 0)
    producers = [
        AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=f"{namespace}.{n}") for n in range(2)
    ]
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka, isolation_level="read_committed")
    for client in (producers[0].client, producers[1].client, consumer._client):
        known.lend(client)

    async with asyncio.timeout(30):
        for producer in producers:
            await producer.start()
            async with producer.transaction():
                await producer.send_and_wait(where.topic, b"value", partition=0)
        await consumer.start()
        consumer.assign([where])
        consumer.seek(where, 0)
        found = [(await consumer.getone()).value for _ in producers]

    assert found == [b"value", b"value"]
    assert repr(known) == "<KnownBrokers [1], asked 1 times>"
    await asyncio.gather(*map(discard_producer, producers), discard_consumer(consumer))
