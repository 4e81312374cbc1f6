"""What befalls the topics of a group on a real broker, under the contract of `tests/lost_log_contract.py`."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.protocol.admin import DeleteGroupsRequest

from shared.kafka.admin.catalog import TopicSpec
from shared.kafka.admin.topics import checkpoints_topic, ensure_topics, fragments_topics, list_topics
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import LATEST, list_offsets
from shared.model.names import Names
from tests.integration.kafka_log_ground import RETENTION_MS
from tests.topics import admin_client, records_of


class KafkaOperator:
    """The contract's `Operator` of a group of two streams on a real broker."""

    def __init__(self, kafka: str, names: Names) -> None:
        self._kafka, self._names = kafka, names

    async def lose_end(self, stream: int, keep: int) -> None:
        """By deleting the topic: what is kept is written anew, so it has other append times."""
        topic = self._names.fragments(stream)
        kept = (await records_of(self._kafka, topic))[:keep]
        await self._create_anew(fragments_topics(self._names, 2, RETENTION_MS)[stream])
        async with AIOKafkaProducer(bootstrap_servers=self._kafka) as producer:
            for one in kept:
                await producer.send_and_wait(topic, value=one.value, key=one.key, partition=0)

    async def retain_from(self, stream: int, first: int) -> None:
        await self._delete_records(TopicPartition(self._names.fragments(stream), 0), first)

    async def start_over(self, stream: int) -> None:
        """Deletes the whole Kafka group, so only one stream may have committed."""
        group = self._names.kafka_group("default")
        async with admin_client(self._kafka) as admin:
            coordinator = await admin.find_coordinator(group)
            response = await admin._send_request(DeleteGroupsRequest([group]), coordinator)
            assert [code for _, code in response.results] == [0]
        partition = TopicPartition(self._names.checkpoints("default"), stream)
        async with Cluster(self._kafka) as cluster:
            end = (await list_offsets(cluster, [partition], LATEST))[partition]
        await self._delete_records(partition, end)

    async def lose_checkpoints(self, stream: int) -> None:
        await self._create_anew(checkpoints_topic(self._names, "default", 2))

    async def _delete_records(self, partition: TopicPartition, below: int) -> None:
        async with admin_client(self._kafka) as admin:
            await admin.delete_records({partition: RecordsToDelete(before_offset=below)})

    async def _create_anew(self, spec: TopicSpec) -> None:
        async with admin_client(self._kafka) as admin:
            await admin.delete_topics([spec.name])
        async with asyncio.timeout(20):
            while spec.name in await list_topics(self._kafka):  # noqa: ASYNC110  the broker notifies no client
                await asyncio.sleep(0.05)
            await ensure_topics(self._kafka, [spec], 1)
