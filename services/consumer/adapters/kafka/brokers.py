"""Makes clients of aiokafka start faster: they share what one of them has learnt of the brokers.

Each client of aiokafka opens a connection only to ask for the brokers, and closes it: 0.8 ms of its CPU and
0.6 ms of the broker's, twice for each stream that a member opens. Of clients that start at about the same
time only the first one asks. And a transactional producer can find its coordinator, which is most of its
start, before it may fence other owners. aiokafka 0.14 has no interface for this, so this file uses its
internals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient, CoordinationType

MAX_AGE_S = 5.0
"""How long the brokers are shared: less than a start takes to fail, so the next try asks again."""


class KnownBrokers:
    """The brokers of a cluster, as recently started clients found them."""

    def __init__(self) -> None:
        self._brokers: dict[int, Any] = {}
        self._learnt_s = 0.0
        self._asked = 0
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<KnownBrokers {sorted(self._brokers)}, asked {self._asked} times>"

    def lend(self, client: AIOKafkaClient) -> None:
        """Call it before the client starts: the client then asks only if no other has done so recently."""
        ask = client.bootstrap

        async def bootstrap() -> None:
            now_s, asked = asyncio.get_running_loop().time, self._asked
            async with self._lock:
                is_old = self._asked == asked and now_s() - self._learnt_s > MAX_AGE_S
                if is_old or not self._brokers:
                    await ask()
                    self._brokers, self._learnt_s = dict(client.cluster._brokers), now_s()
                    self._asked += 1
                    return
            client.cluster._brokers = dict(self._brokers)
            client._sync_task = asyncio.create_task(client._md_synchronizer(), name="metadata of a client")

        client.bootstrap = bootstrap


async def prepare_producer(producer: AIOKafkaProducer) -> None:
    """Connects a transactional producer to its coordinator. It has no producer id yet, so it fences no
    owner."""
    await producer.client.bootstrap()
    await producer._sender._find_coordinator(
        CoordinationType.TRANSACTION, producer._txn_manager.transactional_id
    )


def add_partitions(producer: AIOKafkaProducer, partitions: Iterable[TopicPartition]) -> None:
    """Adds the partitions to the open transaction, by one request, even if nothing is written to them."""
    for partition in partitions:
        producer._txn_manager.maybe_add_partition_to_txn(partition)


async def start_prepared(producer: AIOKafkaProducer) -> None:
    """Completes the start of a prepared producer: it gets its producer id, which fences earlier owners."""
    await producer._sender.start()
