"""Wires a consumer: settings, ZooKeeper, Kafka, one member of one group, its HTTP face; and its end."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time

from services.consumer.adapters.coordinator import ZooKeeperCoordinator
from services.consumer.adapters.kafka_sink import KafkaStreamLog
from services.consumer.app import create_app
from services.consumer.core.ownership import OwnershipSettings
from services.consumer.hold import Surroundings
from services.consumer.member import Member
from services.consumer.metrics import ConsumerMetrics
from services.consumer.settings import ConsumerSettings
from services.consumer.status import Rates, member_status
from shared.backoff import Backoff
from shared.cluster import MemberNode
from shared.errors import Unavailable
from shared.kafka import (
    checkpoints_topic,
    count_partitions,
    ensure_topics,
    events_topic,
    sessions_topic,
)
from shared.runtime import http_server, main
from shared.stream_table import wait_for_table
from shared.zookeeper import ZooKeeper


def wall_ms() -> int:
    """The member's own clock, which only ever proposes a tick."""
    return time.time_ns() // 1_000_000


async def serve(settings: ConsumerSettings, stop: asyncio.Event) -> None:
    """Runs a member until `stop`; then it releases its streams, leaves the group, and closes all.

    It answers from the start, so that it may start before Kafka, ZooKeeper and the stream table.
    """
    node = MemberNode(address=settings.address, pid=os.getpid(), since=wall_ms())
    zookeeper = ZooKeeper(settings.zookeeper, settings.zookeeper_timeout_s)
    joined: list[Member] = []
    rates = Rates(time.monotonic)
    app = create_app(
        status=lambda: member_status(joined, settings.member, settings.group, node, rates),
        plan=lambda: joined[0].plan() if joined else {"moves": [], "quota": {}},
        complaints=lambda: (
            joined[0].complaints() if joined else ["waits for ZooKeeper, Kafka or the stream table"]
        ),
        metrics=ConsumerMetrics(joined),
    )
    try:
        async with http_server(app, settings.host, settings.port, lifespan="off"):
            preparing = asyncio.create_task(_prepare(settings, zookeeper), name="prepare")
            stopping = asyncio.create_task(stop.wait(), name="stop")
            await asyncio.wait((preparing, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not preparing.done():
                preparing.cancel()
                return
            count, log = preparing.result()
            joined.append(_member(settings, zookeeper, count, log, node))
            try:
                await joined[0].run(stop)
            finally:
                await log.close()
    finally:
        await zookeeper.close()


async def _prepare(settings: ConsumerSettings, zookeeper: ZooKeeper) -> tuple[int, KafkaStreamLog]:
    """Waits for ZooKeeper and the stream table, makes the group and its topics; the number of streams."""
    names, group = settings.names, settings.group
    backoff = Backoff(first_s=0.2, cap_s=3.0)
    await zookeeper.connect()
    while True:
        try:
            count = (await wait_for_table(zookeeper, names)).count
            coordinator = _coordinator(settings, zookeeper, count)
            await coordinator.ensure_group(settings.group_settings)
            topics = [
                sessions_topic(names, group, settings.session_partitions, settings.session_retention_ms),
                checkpoints_topic(names, group, count),
                events_topic(names),
            ]
            await ensure_topics(settings.kafka, topics, settings.replication)
            partitions = await count_partitions(settings.kafka, names.sessions(group))
            return count, KafkaStreamLog(settings.kafka, names, group, settings.group_settings, partitions)
        except Unavailable as error:
            logging.getLogger(__name__).warning("not ready yet", extra={"why": error.detail})
            await asyncio.sleep(backoff.next_s())


def _coordinator(settings: ConsumerSettings, zookeeper: ZooKeeper, count: int) -> ZooKeeperCoordinator:
    return ZooKeeperCoordinator(
        zookeeper,
        settings.names,
        settings.group,
        settings.member,
        count=count,
        address=settings.address,
    )


def _member(
    settings: ConsumerSettings, zookeeper: ZooKeeper, count: int, log: KafkaStreamLog, node: MemberNode
) -> Member:
    return Member(
        coordinator=_coordinator(settings, zookeeper, count),
        log=log,
        around=Surroundings(
            group=settings.group,
            settings=settings.group_settings,
            limits=settings.stream_limits,
            log=log,
            now_s=time.monotonic,
            wall_ms=wall_ms,
        ),
        node=node,
        settings=OwnershipSettings(
            grace_ms=int(settings.grace_s * 1000), settle_ms=int(settings.settle_s * 1000)
        ),
        release_s=settings.release_s,
        commits_per_s=settings.commits_per_s,
    )


if __name__ == "__main__":
    sys.exit(main("consumer", ConsumerSettings, serve))
