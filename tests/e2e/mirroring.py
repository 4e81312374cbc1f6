"""A second cluster for tests: its servers, MirrorMaker or a copy by hand, and `baton mirror` on them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from click.testing import CliRunner, Result

from cli.kafka.mirror.config import WORKERS, MirrorOptions, mirror_config
from cli.main import cli
from cli.stack.mirror import mirror_argv
from cli.stack.processes.leash import on_leash
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.connect.access import KafkaAccess
from shared.kafka.connect.cluster import Cluster
from shared.model.group import GroupSettings
from shared.model.names import Names
from shared.model.routing import initial_table
from shared.zookeeper.connection import ZooKeeper
from tests.e2e.fleet import PARTITIONS, Fleet
from tests.e2e.readers import Where
from tests.servers import KafkaServer, ZooKeeperServer, temporary_home
from tests.topics import admin_client, records_of
from tests.waiting import until

LARGE = 2 * 1024 * 1024


@contextlib.contextmanager
def second_cluster() -> Iterator[tuple[KafkaServer, ZooKeeperServer]]:
    """Kafka and ZooKeeper that run, and know nothing of the others."""
    with temporary_home("target") as home:
        for folder in ("kafka", "zookeeper"):
            (home / folder).mkdir()
        kafka, zookeeper = KafkaServer(home / "kafka"), ZooKeeperServer(home / "zookeeper")
        try:
            kafka.start()
            zookeeper.start()
            yield kafka, zookeeper
        finally:
            kafka.kill()
            zookeeper.kill()


async def create_copies(target: str, topics: Mapping[str, int], **settings: str) -> None:
    """Creates topics with these numbers of partitions as MirrorMaker does: they keep the times they get."""
    configs = {"max.message.bytes": str(LARGE)} | {name.replace("_", "."): v for name, v in settings.items()}
    async with admin_client(target) as admin:
        await _create(admin, [NewTopic(name, n, 1, topic_configs=configs) for name, n in topics.items()])


async def _create(admin: AIOKafkaAdminClient, topics: list[NewTopic]) -> None:
    answer = await admin.create_topics(topics)
    assert not any(code for _, code, *_ in answer.topic_errors), answer.topic_errors


async def copy_by_hand(
    source: str,
    target: str,
    topic: str,
    partition: int = 0,
    *,
    leave_out: int = 0,
    in_transactions: int = 0,
    change_at: int = -1,
) -> int:
    """Copies a partition without its last records, with times and headers; returns how many records.

    `in_transactions`: so many records in each, whose ends take offsets of their own. `change_at`: the offset
    of a record that is copied wrongly.
    """
    records = await records_of(source, topic, partition)
    records = records[: len(records) - leave_out]
    ident = f"copier-{topic}-{partition}" if in_transactions else None
    async with AIOKafkaProducer(
        bootstrap_servers=target, transactional_id=ident, enable_idempotence=True, max_request_size=LARGE
    ) as producer:
        step = in_transactions or max(1, len(records))
        for at in range(0, len(records), step):
            async with producer.transaction() if in_transactions else contextlib.nullcontext():
                sent = [
                    await producer.send(
                        topic,
                        one.value if one.offset != change_at else b"{}",
                        key=one.key,
                        partition=partition,
                        timestamp_ms=one.timestamp,
                        headers=list(one.headers),
                    )
                    for one in records[at : at + step]
                ]
                await asyncio.gather(*sent)
    return len(records)


async def baton_mirror(*arguments: str) -> Result:
    """Runs `baton mirror …`."""
    return await asyncio.to_thread(CliRunner().invoke, cli, ["mirror", *arguments])


def settings_of(settings: GroupSettings) -> list[str]:
    """`--set` for each setting that differs from its default."""
    default = GroupSettings()
    changed = {
        name: getattr(settings, name)
        for name in settings.__struct_fields__
        if getattr(settings, name) != getattr(default, name)
    }
    return [word for name, value in changed.items() for word in ("--set", f"{name}={value}")]


@contextlib.asynccontextmanager
async def fleet_at(
    kafka: str, zookeeper: str, names: Names, streams: int, group: str, home: Path, settings: GroupSettings
) -> AsyncIterator[Fleet]:
    """A fleet on a copy, without topics and table of its own; no process outlives the block."""
    await asyncio.to_thread(home.mkdir)
    one = Fleet(Where(kafka, names, streams, PARTITIONS, group), zookeeper, home, settings)
    del one.environment["BATON_STREAMS"]
    one.table = initial_table(streams)
    async with ZooKeeper(zookeeper, 6.0) as one.znodes:
        try:
            yield one
        finally:
            one.end()


class MirrorMaker:
    """A process of MirrorMaker, which dies with the test."""

    def __init__(self, home: Path, source: str, target: str, names: Names, *, same_offsets: bool) -> None:
        self._target = target
        self._config = home / "mirror.properties"
        self._log = home / "mirror.log"
        options = MirrorOptions(
            source=KafkaAccess(bootstrap=source),
            target=KafkaAccess(bootstrap=target),
            names=names,
            replication=1,
            same_offsets=same_offsets,
        )
        self._config.write_text(mirror_config(options))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, for the first time or again."""
        argv = on_leash(mirror_argv(self._config, KafkaAccess(bootstrap="")))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """SIGSTOP."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    async def left(self) -> None:
        """Returns once the target has noticed that it is gone."""
        async with Cluster(self._target) as cluster:

            async def is_gone() -> bool:
                return not await KafkaGroup(cluster, WORKERS).count_members()

            await until(is_gone, lambda: "MirrorMaker is still there")

    def tail(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-3000:]
