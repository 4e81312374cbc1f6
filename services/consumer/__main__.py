"""Wires a consumer: settings, ZooKeeper, Kafka, one member of one group and its HTTP face; and closes it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from services.consumer.adapters.http_peers import HttpPeers
from services.consumer.adapters.kafka.log import KafkaStreamLog
from services.consumer.adapters.tcp_listeners import TcpListeners
from services.consumer.adapters.zookeeper.coordinator import ZooKeeperCoordinator
from services.consumer.app import create_app
from services.consumer.handover.nonces import Nonces
from services.consumer.handover.routes import Reception
from services.consumer.member.garbage import (
    collect_when_small,
    count_objects,
    free_discarded,
    keep_collections_short,
)
from services.consumer.member.member import Member
from services.consumer.member.metrics import ConsumerMetrics
from services.consumer.member.predecessor import await_predecessor
from services.consumer.member.status import Rates, member_status
from services.consumer.ports import Listeners
from services.consumer.settings import ConsumerSettings
from services.consumer.stream.context import GroupContext
from shared.backoff import Backoff
from shared.errors import InvalidInput, NotFound, Unavailable
from shared.kafka.admin.append_times import check_append_times
from shared.kafka.admin.catalog import count_partitions
from shared.kafka.admin.topics import checkpoints_topic, ensure_topics, events_topic, sessions_topic
from shared.kafka.connect.cluster import Cluster
from shared.kafka.send.event_sink import KafkaEventSink
from shared.model.cluster import MemberNode
from shared.model.group import GroupSettings
from shared.model.names import Names
from shared.model.secrets import Secrets
from shared.model.start import GroupStart
from shared.server.bounds import bounds_for
from shared.server.face import Face
from shared.server.listener import http_server
from shared.service.runtime import main
from shared.service.signing import Here
from shared.zookeeper.connection import ZooKeeper
from shared.zookeeper.group_chain import read_chain, read_start
from shared.zookeeper.secret import ensure_secrets
from shared.zookeeper.stream_table import wait_for_table


def wall_ms() -> int:
    """The member's wall clock. It decides nothing about sessions: at most it proposes a tick."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a member needs to join, once ZooKeeper and Kafka are there."""

    count: int
    group: GroupSettings
    chain: Sequence[GroupStart]
    log: KafkaStreamLog
    secrets: Secrets


async def serve(settings: ConsumerSettings, stop: asyncio.Event) -> None:
    """Runs a member until `stop`; then drains it, leaves the group and closes everything.

    It answers requests from the start, so it may start before Kafka, ZooKeeper and the stream table, and
    until the end, even after a drain.
    """
    node = MemberNode(address=settings.address, pid=os.getpid(), since=wall_ms())
    zookeeper = ZooKeeper(settings.zookeeper, settings.zookeeper_timeout_s, settings.zookeeper_access)
    joined: list[Member] = []
    receptions: list[Reception] = []
    waiting = ["waiting for ZooKeeper, Kafka or the stream table"]
    rates = Rates(time.monotonic)
    app = create_app(
        status=lambda: member_status(joined, settings.member, settings.group, node, rates),
        plan=lambda: joined[0].plan() if joined else {"moves": [], "quota": {}},
        complaints=lambda: complaints_of(joined, zookeeper, waiting),
        metrics=ConsumerMetrics(joined),
        reception=lambda: receptions[0] if receptions else None,
        workers=lambda: joined[0].workers if joined else [],
        hosts=settings.own_hosts,
    )
    listeners = TcpListeners(settings.tls)
    # asked before this process listens there itself
    was_open = await listeners.is_open(settings.address)
    bounds = bounds_for(settings)
    async with http_server(Face(app), settings.host, settings.port, bounds=bounds, tls=settings.tls):
        # the port closes last: until this process has left, nobody may think that it has been killed
        try:
            preparing = asyncio.create_task(
                prepare_to_follow(settings, zookeeper, waiting, listeners, was_open), name="prepare"
            )
            stopping = asyncio.create_task(stop.wait(), name="stop")
            await asyncio.wait((preparing, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not preparing.done():
                preparing.cancel()
                return
            prepared = preparing.result()
            async with member_of(settings, zookeeper, node, prepared) as member:
                joined.append(member)
                receptions.append(reception_of(settings, member, prepared))
                await member.run(stop)
                await stop.wait()
        finally:
            await zookeeper.close()


async def prepare_to_follow(
    settings: ConsumerSettings,
    zookeeper: ZooKeeper,
    waiting: list[str],
    listeners: Listeners,
    was_open: bool | None,
) -> Prepared:
    """Prepares a member, and waits while an earlier process of its id answers."""

    def complain(why: str) -> None:
        waiting[1:] = [why]

    prepared = await prepare(settings, zookeeper, waiting)
    coordinator = _coordinator(settings, zookeeper, prepared.count, prepared.group)
    await await_predecessor(coordinator, listeners, settings.address, was_open=was_open, complain=complain)
    return prepared


def complaints_of(joined: list[Member], zookeeper: ZooKeeper, waiting: list[str]) -> list[str]:
    """Why the process is not ready; empty if it is."""
    own = joined[0].complaints() if joined else waiting
    return [*own, *filter(None, [zookeeper.complaint])]


@contextlib.asynccontextmanager
async def member_of(
    settings: ConsumerSettings, zookeeper: ZooKeeper, node: MemberNode, prepared: Prepared
) -> AsyncIterator[Member]:
    """A member that does not run yet, with its event sink and peers. Closes everything but ZooKeeper."""
    event_sink = KafkaEventSink(prepared.log.cluster, settings.names)
    limits = settings.handover_limits
    sending = asyncio.create_task(event_sink.run(), name="events")
    members: list[Member] = []
    tidying = asyncio.create_task(collect_when_small(lambda: count_objects(members)), name="garbage")
    freeing = asyncio.create_task(free_discarded(), name="free discarded state")
    try:
        async with HttpPeers(
            here_of(settings),
            prepared.secrets,
            wall_ms,
            max_body_bytes=limits.max_body_bytes,
            tls=settings.tls,
        ) as peers:
            member = Member(
                coordinator=_coordinator(settings, zookeeper, prepared.count, prepared.group),
                context=_group_context(settings, prepared),
                node=node,
                peers=peers,
                listeners=TcpListeners(settings.tls),
                settings=settings.ownership,
                pace=settings.pace,
                limits=limits,
                emit=event_sink.emit,
            )
            members.append(member)
            yield member
    finally:
        tidying.cancel()
        freeing.cancel()
        sending.cancel()
        await event_sink.close()
        await prepared.log.close()


async def prepare(settings: ConsumerSettings, zookeeper: ZooKeeper, waiting: list[str]) -> Prepared:
    """Waits for ZooKeeper and the stream table, then creates the group and its topics.

    The last entry of `waiting` says what has failed, if anything has.
    """
    names, group = settings.names, settings.group
    backoff = Backoff(first_s=0.2, cap_s=3.0)
    await zookeeper.connect()
    while True:
        try:
            count = (await wait_for_table(zookeeper, names)).count
            await check_append_times(settings.kafka_access, names)
            await _check_not_over(zookeeper, names, group)
            coordinator = _coordinator(settings, zookeeper, count, settings.group_settings)
            found = await coordinator.ensure_group(settings.group_settings)
            if settings.max_fragment_bytes > found.max_session_bytes:
                raise InvalidInput(
                    f"BATON_MAX_FRAGMENT_BYTES={settings.max_fragment_bytes} exceeds the group's "
                    f"max_session_bytes={found.max_session_bytes}: a session must have room for a fragment"
                )
            chain = await read_chain(zookeeper, names, group)
            secrets = await ensure_secrets(zookeeper, names, *settings.secrets)
            topics = [
                sessions_topic(names, group, settings.session_partitions, settings.session_retention_ms),
                checkpoints_topic(names, group, count),
                events_topic(names),
            ]
            await ensure_topics(settings.kafka_access, topics, settings.replication)
            async with Cluster(settings.kafka_access) as cluster:
                partitions = await count_partitions(cluster, names.sessions(group))
            log = KafkaStreamLog(settings.kafka_access, names, group, found, partitions)
            return Prepared(count=count, group=found, chain=chain, log=log, secrets=secrets)
        except (Unavailable, NotFound) as error:  # ZooKeeper may be reset while the group is created
            logging.getLogger(__name__).warning("not ready yet", extra={"why": error.detail})
            waiting[1:] = [error.reason if isinstance(error, Unavailable) else error.detail]
            await asyncio.sleep(backoff.next_s())


async def _check_not_over(zookeeper: ZooKeeper, names: Names, group: str) -> None:
    """Raises InvalidInput for a group that must not go on: it would deliver everything again."""
    start = await read_start(zookeeper, names, group)
    if start is not None and start.is_over:
        raise InvalidInput(
            f"the work of group {group!r} ended at another cluster, and its sessions are here: start members "
            "of a new group, which follows it or is alone (docs/mirror.md)"
        )


def _coordinator(
    settings: ConsumerSettings, zookeeper: ZooKeeper, count: int, group: GroupSettings
) -> ZooKeeperCoordinator:
    return ZooKeeperCoordinator(
        zookeeper,
        settings.names,
        settings.group,
        settings.member,
        count=count,
        address=settings.address,
        is_fenced=group.delivery == "exactly_once",
    )


def _group_context(settings: ConsumerSettings, prepared: Prepared) -> GroupContext:
    return GroupContext(
        group=settings.group,
        settings=prepared.group,
        limits=settings.stream_limits,
        log=prepared.log,
        chain=prepared.chain,
        now_s=time.monotonic,
        wall_ms=wall_ms,
    )


def here_of(settings: ConsumerSettings) -> Here:
    """Whom signed requests to this member name."""
    return Here(member=settings.member, namespace=settings.namespace, group=settings.group)


def reception_of(settings: ConsumerSettings, member: Member, prepared: Prepared) -> Reception:
    """What the routes for other members and control work on."""
    return Reception(
        here=here_of(settings),
        hint_store=member.hint_store,
        secrets=prepared.secrets,
        nonces=Nonces(wall_ms()),
        departure=member.departure,
        wall_ms=wall_ms,
    )


if __name__ == "__main__":
    keep_collections_short()
    sys.exit(main("consumer", ConsumerSettings, serve))
