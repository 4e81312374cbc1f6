"""Wires control (ZooKeeper, Kafka, the members, Spark, the HTTP face), and stops it in order.

It answers from its start, with 503 until it has read the cluster, so it may start before everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from services.control.adapters.http_drain import HttpDrain
from services.control.adapters.http_members import HttpMembers, http_client
from services.control.adapters.http_owners import HttpOwners
from services.control.adapters.http_producers import HttpProducers
from services.control.adapters.kafka_events import KafkaEvents
from services.control.adapters.kafka_history import KafkaHistory
from services.control.adapters.kafka_offsets import KafkaOffsets
from services.control.adapters.kafka_records import KafkaRecords
from services.control.adapters.kafka_sessions import KafkaSessions
from services.control.adapters.run_store import RunStore
from services.control.adapters.signed_requests import SignedRequests
from services.control.adapters.spark_place import SparkPlace
from services.control.adapters.spark_runner import SparkRunner
from services.control.adapters.zookeeper_cluster import ZooKeeperCluster
from services.control.adapters.zookeeper_operations import ZooKeeperOperations
from services.control.adapters.zookeeper_pause import ZooKeeperPause
from services.control.adapters.zookeeper_pins import ZooKeeperPins
from services.control.core.jobs import JOBS
from services.control.core.schedules import Retry, parse_schedules
from services.control.http.api.access.access import Access
from services.control.http.api.access.tokens import Tokens
from services.control.http.app import create_app
from services.control.http.console.live import LiveHub
from services.control.http.console.routes import scene_of, wall_ms
from services.control.http.console.work import WorkLog, work_in
from services.control.live.actions import Actions
from services.control.live.cluster_view import ClusterView
from services.control.live.effects import Effects
from services.control.live.feed import EventFeed
from services.control.live.freshness import Freshness
from services.control.live.history import History
from services.control.live.lookup import LookUp
from services.control.live.metrics import registry_for
from services.control.live.operations import Operations
from services.control.live.problems import Problems
from services.control.live.scheduler import Scheduler
from services.control.ports import ClusterSource, MemberSource, OffsetSource, ProducerSource
from services.control.settings import (
    END,
    ControlSettings,
    cluster_options_for,
    lake_for,
    own_hosts_for,
    spark_jars_for,
    spark_master_for,
)
from services.control.spark.request import ClusterOptions, ZooKeeperPlace
from services.control.tables.lake import Lake
from services.control.tables.positions import LakePositions
from services.control.tables.reader import TableReader
from services.control.tables.sessions import LakeSessions
from shared.kafka.cluster import Cluster
from shared.kafka.event_sink import KafkaEventSink
from shared.model.secrets import Secrets
from shared.service.runtime import http_server, main
from shared.zookeeper.connection import ZooKeeper
from shared.zookeeper.secret import ensure_secrets


async def serve(settings: ControlSettings, stop: asyncio.Event) -> None:
    """Runs control until `stop`. Then ends the drivers if `runs_at_stop` says so, and closes its clients."""
    async with contextlib.AsyncExitStack() as stack:
        zookeeper = ZooKeeper(settings.zookeeper, settings.zookeeper_timeout_s, settings.zookeeper_access)
        stack.push_async_callback(zookeeper.close)
        offsets = await stack.enter_async_context(KafkaOffsets(settings.kafka_access, settings.names))
        http = await stack.enter_async_context(http_client(settings.tls))
        feed = EventFeed()
        cluster = ZooKeeperCluster(zookeeper, settings.names)
        view = _view(settings, cluster, offsets, HttpMembers(http), HttpProducers(http), feed)
        event_sink = await stack.enter_async_context(_event_sink(settings))
        actions = Actions(event_sink.emit)
        drain = HttpDrain(http, partial(_secrets, settings, zookeeper), settings.namespace)
        operations = _operations(settings, view, zookeeper, drain, actions)
        store = RunStore(Path(settings.runs))
        stack.enter_context(store.reserved())
        runner = SparkRunner(
            store,
            _place(settings),
            http,
            timeout_s=settings.run_timeout_s,
            kept=settings.runs_kept,
            idle_s=settings.spark_idle_s,
            kept_s=settings.runs_kept_days * 86_400,
        )
        scheduler = _scheduler(settings, runner, view)
        events = KafkaEvents(settings.kafka_access, settings.names, feed, replication=settings.replication)
        lake = Lake(lake_for(settings, os.environ), settings.namespace)
        tables = TableReader(lake)
        stack.callback(tables.close)
        topics = await stack.enter_async_context(KafkaSessions(settings.kafka_access, settings.names))
        freshness = Freshness(LakePositions(lake), topics, view, settings.names, every_s=settings.freshness_s)
        samples = KafkaHistory(settings.kafka_access, settings.names, replication=settings.replication)
        history = History(view, freshness.rows, samples.write, writer=settings.address)
        problems = Problems(view, runner, freshness.rows)
        records = await stack.enter_async_context(KafkaRecords(settings.kafka_access, settings.names))
        signed = SignedRequests(http, partial(_secrets, settings, zookeeper), settings.namespace)
        look_up = LookUp(view, HttpOwners(signed), records, LakeSessions(tables), freshness.rows)
        registry = registry_for(
            view,
            runner,
            feed,
            lambda: cluster.unreadable_znodes,
            freshness=freshness.rows,
            schedules=scheduler.rows,
        )
        access = _access(settings)
        await access.step()
        work = WorkLog(lambda: work_in(runner.runs(), operations.all(), wall_ms()))
        hub = LiveHub(scene_of(view, problems), feed, every_s=settings.refresh_s, work=work)
        app = create_app(
            view=view,
            feed=feed,
            hub=hub,
            operations=operations,
            actions=actions,
            runner=runner,
            lake=tables,
            look_up=look_up,
            freshness=freshness.rows,
            history=history,
            problems=problems,
            scheduler=scheduler,
            registry=registry,
            hosts=own_hosts_for(settings),
            access=access,
        )

        async def keep_view() -> None:
            await zookeeper.connect()
            await view.run()

        loops = {"view": keep_view, "events": events.run, "operations": operations.run, "runs": runner.run}
        loops |= {"schedules": scheduler.run, "freshness": freshness.run, "tokens": access.run}
        loops |= {"history": history.run, "samples": partial(samples.run, history.restore)}
        loops |= {"problems": problems.run}
        loops["actions"] = event_sink.run
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop(), name=name) for name, loop in loops.items()]
            try:
                host, port, tls = settings.host, settings.port, settings.tls
                async with http_server(app, host, port, tls=tls, ws="none", lifespan="off"):
                    await stop.wait()
                    # otherwise the server would wait for the followers to leave
                    feed.close()
                    hub.close()
            finally:
                for task in tasks:
                    task.cancel()
                if settings.runs_at_stop == END:
                    await runner.stop()


def _access(settings: ControlSettings) -> Access:
    tokens = None if settings.tokens_file is None else Tokens(settings.tokens_file)
    is_open, is_read_only = settings.control_open == "1", settings.read_only == "1"
    return Access(tokens, is_open=is_open, is_read_only=is_read_only)


def _view(
    settings: ControlSettings,
    cluster: ClusterSource,
    offsets: OffsetSource,
    members: MemberSource,
    producers: ProducerSource,
    feed: EventFeed,
) -> ClusterView:
    return ClusterView(
        cluster,
        offsets,
        members,
        producers,
        settings.names,
        refresh_s=settings.refresh_s,
        status_window_s=settings.status_window_s,
        ownership_history=feed.recent_events.ownership_history,
    )


def _scheduler(settings: ControlSettings, runner: SparkRunner, view: ClusterView) -> Scheduler:
    retry = Retry(most=settings.schedule_retries, pause_s=settings.schedule_retry_s)
    scheduler = Scheduler(parse_schedules(settings.schedules, JOBS), runner, view, retry)
    runner.needed = scheduler.needed
    return scheduler


def _operations(
    settings: ControlSettings,
    view: ClusterView,
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
        cluster=ClusterOptions(
            driver_host=settings.spark_driver_host,
            python=settings.spark_python,
            pack=settings.spark_pack,
            secret_file=settings.spark_secret_file,
            options=cluster_options_for(settings),
        ),
        zookeeper=ZooKeeperPlace(
            servers=settings.zookeeper,
            timeout_s=settings.zookeeper_timeout_s,
            user=settings.zookeeper_user,
            password_file=settings.zookeeper_password_file,
            acl=settings.zookeeper_acl,
        ),
    )


if __name__ == "__main__":
    sys.exit(main("control", ControlSettings, serve))
