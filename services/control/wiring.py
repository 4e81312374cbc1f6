"""Makes control's parts: its adapters on the real servers, and what lives between them and the HTTP face."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from services.control.adapters.processes.client import HttpClient, http_client
from services.control.adapters.processes.kept_connections import KeptConnections
from services.control.adapters.processes.queues import HttpQueues
from services.control.adapters.processes.signed_requests import HttpDrain, HttpOwners, SignedRequests
from services.control.adapters.processes.statuses import HttpMembers, HttpProducers
from services.control.adapters.runs.place import SparkPlace
from services.control.adapters.runs.runner import SparkRunner
from services.control.adapters.runs.store import RunStore
from services.control.adapters.topics.events import KafkaEvents
from services.control.adapters.topics.history import KafkaHistory
from services.control.adapters.topics.offsets import KafkaOffsets
from services.control.adapters.topics.records import KafkaRecords
from services.control.adapters.topics.rewinds import KafkaRewinds
from services.control.adapters.topics.sessions import KafkaSessions
from services.control.adapters.znodes.cluster import ZooKeeperCluster
from services.control.adapters.znodes.groups import ZooKeeperGroups
from services.control.adapters.znodes.operations import ZooKeeperOperations
from services.control.adapters.znodes.pause import ZooKeeperPause
from services.control.adapters.znodes.pins import ZooKeeperPins
from services.control.core.runs.jobs import JOBS
from services.control.core.runs.schedules import Retry, groups_with, parse_schedules
from services.control.http.app import Parts
from services.control.http.console.live.snapshots import LiveHub
from services.control.http.console.live.work import WorkLog, work_in
from services.control.http.console.pages.routes import scene_of, wall_ms
from services.control.live.acts.actions import Actions
from services.control.live.acts.effects import Effects
from services.control.live.acts.groups import Groups
from services.control.live.acts.operations import Operations
from services.control.live.feed.feed import EventFeed
from services.control.live.look_ups import LookUp
from services.control.live.metrics import registry_for
from services.control.live.queues.history import QueueHours
from services.control.live.queues.queues import Queues
from services.control.live.runs.scheduler import Scheduler
from services.control.live.view.cluster_view import ClusterView
from services.control.live.view.freshness import Freshness
from services.control.live.view.history import History
from services.control.live.view.hot_keys import HotKeys
from services.control.live.view.problems import Problems
from services.control.settings import (
    ControlSettings,
    cluster_options_for,
    lake_for,
    spark_jars_for,
    spark_master_for,
)
from services.control.spark.run.request import ClusterOptions, ZooKeeperPlace
from services.control.tables.lake import Lake
from services.control.tables.positions import LakePositions
from services.control.tables.reader import TableReader
from services.control.tables.sessions import LakeSessions
from shared.kafka.connect.cluster import Cluster
from shared.kafka.send.event_sink import KafkaEventSink
from shared.model.secrets import Secrets
from shared.zookeeper.connection import ZooKeeper
from shared.zookeeper.secret import ensure_secrets

Loop = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Control before it is served. `loops` are its tasks by name; `runner` runs its drivers."""

    parts: Parts
    loops: Mapping[str, Loop]
    runner: SparkRunner


async def control_on(settings: ControlSettings, stack: contextlib.AsyncExitStack) -> Control:
    """Control over its servers, none of which need to be there yet. `stack` closes its clients."""
    zookeeper = ZooKeeper(settings.zookeeper, settings.zookeeper_timeout_s, settings.zookeeper_access)
    stack.push_async_callback(zookeeper.close)
    http = await stack.enter_async_context(http_client(settings.tls))
    feed, cluster = EventFeed(), ZooKeeperCluster(zookeeper, settings.names)
    view = await _view(settings, stack, cluster, feed)
    sink = await stack.enter_async_context(_event_sink(settings))
    actions = Actions(sink.emit)
    signed = SignedRequests(http, partial(_secrets, settings, zookeeper), settings.namespace)
    operations = _operations(settings, view, feed, zookeeper, HttpDrain(signed), actions)
    rewinds = await stack.enter_async_context(KafkaRewinds(settings.kafka_access, settings.names))
    store = ZooKeeperGroups(zookeeper, settings.names)
    runner = _runner(settings, stack, http)
    scheduler = _scheduler(settings, runner, view, actions)
    owners = HttpOwners(signed)
    lake = await _lake_parts(settings, stack, view, owners)
    kafka, names, replication = settings.kafka_access, settings.names, settings.replication
    samples = KafkaHistory(kafka, names, replication=replication)
    events = KafkaEvents(kafka, names, feed, replication=replication)
    history = History(view, lake.freshness.rows, samples.write, writer=settings.address)
    workers = HttpQueues(http, settings.queue_urls, settings.queue_key) if settings.queue_urls else None
    queues = Queues(workers, actions)
    queue_hours = QueueHours(queues, samples.write, writer=settings.address)
    hot_keys = HotKeys(view.rows, lake.records)
    problems = Problems(view, runner, lake.freshness.rows, queues=queues.known, hot=hot_keys.known)
    work = WorkLog(lambda: work_in(runner.runs(), operations.all(), wall_ms()))
    parts = Parts(
        view=view,
        feed=feed,
        hub=LiveHub(
            scene_of(view, problems, queues=queues.known), feed, every_s=settings.refresh_s, work=work
        ),
        operations=operations,
        groups=Groups(view, operations, store, rewinds, actions, settings.names),
        actions=actions,
        runner=runner,
        lake=lake.tables,
        look_up=lake.look_up,
        freshness=lake.freshness.rows,
        history=history,
        problems=problems,
        queues=queues,
        queue_hours=queue_hours,
        scheduler=scheduler,
        registry=registry_for(
            view,
            runner,
            feed,
            lambda: cluster.unreadable_znodes,
            freshness=lake.freshness.rows,
            schedules=scheduler.rows,
            audits=problems.audits,
        ),
    )

    async def keep_view() -> None:
        await zookeeper.connect()
        await view.run()

    loops: dict[str, Loop] = {"view": keep_view, "events": events.run}
    loops |= {"operations": operations.run, "actions": sink.run, "runs": runner.run}
    loops |= {"schedules": scheduler.run, "freshness": lake.freshness.run, "problems": problems.run}
    loops["hot keys"] = hot_keys.run
    loops |= {"queues": queues.run, "queue history": queue_hours.run, "history": history.run}
    loops["samples"] = partial(samples.run, partial(_restore, history, queue_hours))
    return Control(parts=parts, loops=loops, runner=runner)


def _restore(history: History, queue_hours: QueueHours, values: Iterable[bytes | None]) -> None:
    """Gives each sample of the topic to the history that it is of."""
    history.restore(raw for raw in values if not queue_hours.restore(raw))


@dataclass(frozen=True, slots=True, kw_only=True)
class _LakeParts:
    """What reads the lake's tables, and the records of streams."""

    tables: TableReader
    freshness: Freshness
    look_up: LookUp
    records: KafkaRecords


async def _lake_parts(
    settings: ControlSettings, stack: contextlib.AsyncExitStack, view: ClusterView, owners: HttpOwners
) -> _LakeParts:
    kafka, names = settings.kafka_access, settings.names
    lake = Lake(lake_for(settings, os.environ), settings.namespace)
    tables = TableReader(lake)
    stack.callback(tables.close)
    topics = await stack.enter_async_context(KafkaSessions(kafka, names))
    scheduled = groups_with(parse_schedules(settings.schedules, JOBS), "lake")
    freshness = Freshness(
        LakePositions(lake), topics, view, names, every_s=settings.freshness_s, scheduled=scheduled
    )
    records = await stack.enter_async_context(KafkaRecords(kafka, names))
    look_up = LookUp(view, owners, records, LakeSessions(tables), freshness.rows)
    return _LakeParts(tables=tables, freshness=freshness, look_up=look_up, records=records)


async def _view(
    settings: ControlSettings,
    stack: contextlib.AsyncExitStack,
    cluster: ZooKeeperCluster,
    feed: EventFeed,
) -> ClusterView:
    asked = await stack.enter_async_context(KeptConnections(settings.tls))
    return ClusterView(
        cluster,
        await stack.enter_async_context(KafkaOffsets(settings.kafka_access, settings.names)),
        HttpMembers(asked.get),
        HttpProducers(asked.get),
        settings.names,
        refresh_s=settings.refresh_s,
        status_window_s=settings.status_window_s,
        ownership_history=feed.recent_events.ownership_history,
    )


def _runner(settings: ControlSettings, stack: contextlib.AsyncExitStack, http: HttpClient) -> SparkRunner:
    store = RunStore(Path(settings.runs))
    stack.enter_context(store.reserved())
    return SparkRunner(
        store,
        _place(settings),
        http,
        timeout_s=settings.run_timeout_s,
        kept=settings.runs_kept,
        idle_s=settings.spark_idle_s,
        kept_s=settings.runs_kept_days * 86_400,
    )


def _scheduler(
    settings: ControlSettings, runner: SparkRunner, view: ClusterView, actions: Actions
) -> Scheduler:
    retry = Retry(most=settings.schedule_retries, pause_s=settings.schedule_retry_s)
    scheduler = Scheduler(parse_schedules(settings.schedules, JOBS), runner, view, actions, retry)
    runner.needed = scheduler.needed
    return scheduler


def _operations(
    settings: ControlSettings,
    view: ClusterView,
    feed: EventFeed,
    zookeeper: ZooKeeper,
    drain: HttpDrain,
    actions: Actions,
) -> Operations:
    names = settings.names
    return Operations(
        view,
        Effects(view, ZooKeeperPins(zookeeper, names), drain, ZooKeeperPause(zookeeper, names)),
        ZooKeeperOperations(zookeeper, names),
        actions,
        timeout_s=settings.operation_timeout_s,
        look_every_s=settings.refresh_s,
        movements=feed.movements,
    )


@contextlib.asynccontextmanager
async def _event_sink(settings: ControlSettings) -> AsyncIterator[KafkaEventSink]:
    async with Cluster(settings.kafka_access) as cluster:
        event_sink = KafkaEventSink(cluster, settings.names)
        try:
            yield event_sink
        finally:
            await event_sink.close()


async def _secrets(settings: ControlSettings, zookeeper: ZooKeeper) -> Secrets:
    return await ensure_secrets(zookeeper, settings.names, *settings.secrets)


def _place(settings: ControlSettings) -> SparkPlace:
    return SparkPlace(
        kafka=settings.kafka_access,
        namespace=settings.namespace,
        lake=lake_for(settings, os.environ),
        jars=spark_jars_for(settings, os.environ),
        master=spark_master_for(settings, os.environ),
        cluster=cluster_for(settings),
        zookeeper=ZooKeeperPlace(
            servers=settings.zookeeper,
            timeout_s=settings.run_lock_s,
            user=settings.zookeeper_user,
            password_file=settings.zookeeper_password_file,
            acl=settings.zookeeper_acl,
        ),
    )


def cluster_for(settings: ControlSettings) -> ClusterOptions:
    """How drivers use Spark."""
    return ClusterOptions(
        driver_host=settings.spark_driver_host,
        python=settings.spark_python,
        pack=settings.spark_pack,
        secret_file=settings.spark_secret_file,
        options=cluster_options_for(settings),
    )
