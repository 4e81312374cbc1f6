"""Fixtures for Spark tests: a log in real Kafka, its sessions delivered as an owner does it, and requests.

The sessions come from the consumer's assembler, so the audit is tested against the code it judges.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from cli.stack.jars.lock import jar_folder
from services.consumer.core.commits.delivery import delivered
from services.consumer.core.sessions.assembly import Assembler
from services.consumer.core.sessions.state import Closed, Covered
from services.control.spark.run.request import RunRequest
from shared.kafka.admin.topics import MAX_RECORD_BYTES, ensure_topics, fragments_topics, sessions_topic
from shared.model.group import GroupSettings
from shared.model.head import Head
from shared.model.names import Names
from shared.model.routing import initial_table
from shared.model.sessions import Session, parse_session
from shared.model.start import GroupStart
from tests.topics import records_of

WEEK_MS = 7 * 86_400_000
BEGAN_MS = 1_700_000_000_000
PAGES = 97
DEFAULTS = GroupSettings()
LARGE = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.files.minPartitionNum": "2",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
"""Settings of Spark for large tables, for the session of the tests, which has those for small ones."""


def fragment(key: str, time: int | None = None, **more: Any) -> tuple[bytes, bytes]:
    """A fragment as a record's key and value."""
    body = {"key": key} | ({} if time is None else {"time": time}) | more
    return key.encode(), msgspec.json.encode(body)


def closed_log(
    count: int, keys: int, step_ms: int, *, began_ms: int = BEGAN_MS
) -> list[tuple[bytes | None, bytes | None]]:
    """So many fragments of these keys in turn, `step_ms` apart, and a marker after the last one."""
    fragments = [
        fragment(f"k{n % keys}", began_ms + n * step_ms, data={"path": f"/{n % PAGES}"}) for n in range(count)
    ]
    return [*fragments, (None, b'{"time": %d}' % (began_ms + count * step_ms))]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A Baton in real Kafka; the test plays its producer and its owners."""

    kafka: str
    namespace: str
    streams: int = 3
    group: str = "default"
    settings: GroupSettings = DEFAULTS
    chain: Sequence[GroupStart] = ()
    covered: Mapping[int, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    """By stream and key: the last offset that stands in a session of a followed group."""

    @property
    def names(self) -> Names:
        return Names(self.namespace)

    async def create(self) -> None:
        """Creates the topics."""
        specs = fragments_topics(self.names, self.streams, WEEK_MS)
        specs.append(sessions_topic(self.names, self.group, 2, WEEK_MS))
        await ensure_topics(self.kafka, specs, 1)

    async def send(
        self, records: Sequence[tuple[bytes | None, bytes | None]], *, stream: int | None = None
    ) -> None:
        """Appends fragments to their streams, or to this one; a record without a key goes to every stream."""
        table = initial_table(self.streams)
        streams = range(self.streams) if stream is None else [stream]
        async with self._producer() as producer:
            sent = [
                await producer.send(self.names.fragments(one), value, key=key, partition=0)
                for key, value in records
                for one in (streams if key is None or stream is not None else [table.stream_for(key)])
            ]
            await asyncio.gather(*sent)

    async def sessions(self, log: int = 0) -> tuple[list[tuple[Session, bytes]], dict[int, int]]:
        """The sessions that owners close over the whole log, with their bytes, and each stream's position.

        `log`: the number under which they know it.
        """
        closed: list[tuple[Session, bytes]] = []
        positions = {}
        for stream in range(self.streams):
            start = (self.chain[0].offset(stream) if self.chain else None) or 0
            assembler = Assembler(self.settings, position=start)
            for key, offset in sorted(self.covered.get(stream, {}).items(), key=lambda item: item[1]):
                assembler.covered.cover(key, Covered(offset=offset))
            records = await records_of(self.kafka, self.names.fragments(stream))
            done: list[Closed] = []
            # what one record closes comes in parts: as long as more is left, its offset is the position
            while left := [one for one in records if one.offset >= assembler.position]:
                done += assembler.feed(left)
            while more := assembler.close_due():
                done += more
            closed += [self._session(stream, one, log) for one in done]
            positions[stream] = assembler.position
        return closed, positions

    async def deliver_all(self) -> list[tuple[Session, bytes]]:
        """Delivers what owners close over the whole log, and commits their heads; returns the sessions."""
        sessions, positions = await self.sessions()
        await self.deliver([(session.key.encode(), value) for session, value in sessions])
        await self.commit(positions)
        return sessions

    async def deliver(self, values: Sequence[tuple[bytes, bytes]], *, partition: int = 0) -> None:
        """Appends records to the sessions topic."""
        async with self._producer() as producer:
            sent = [
                await producer.send(self.names.sessions(self.group), value, key=key, partition=partition)
                for key, value in values
            ]
            await asyncio.gather(*sent)

    async def abort(self, values: Sequence[tuple[bytes, bytes]]) -> None:
        """Appends records to the sessions topic as an owner does that is fenced before it commits."""
        topic = self.names.sessions(self.group)
        async with self._producer(transactional_id=f"{self.namespace}.fenced") as producer:
            await producer.begin_transaction()
            for key, value in values:
                await producer.send_and_wait(topic, value, key=key, partition=0)
            await producer.abort_transaction()

    async def commit(
        self, positions: Mapping[int, int], log: int = 0, silent_to: Mapping[int, int] | None = None
    ) -> None:
        """Commits a head per stream, as its owner does; `silent_to`: of streams that silence is behind in."""
        async with self._producer(transactional_id=f"{self.namespace}.test") as producer:
            for stream, position in positions.items():
                head = Head(
                    epoch=1,
                    seq=1,
                    position=position,
                    safe_offset=position,
                    log=log,
                    silent_to=(silent_to or {}).get(stream, position),
                )
                where = TopicPartition(self.names.fragments(stream), 0)
                async with producer.transaction():
                    await producer.send_offsets_to_transaction(
                        {where: OffsetAndMetadata(position, head.metadata())},
                        self.names.kafka_group(self.group),
                    )

    def request(self, job: str, lake: Path, **parameters: Any) -> RunRequest:
        """A run of the job on this pipeline."""
        return RunRequest(
            id="run-1",
            job=job,
            parameters=parameters,
            kafka=self.kafka,
            namespace=self.namespace,
            lake=str(lake),
            jars=str(jar_folder("spark")),
            group=self.group,
            group_settings=self.settings,
            streams=self.streams,
            chain=list(self.chain),
            stream_table=initial_table(self.streams).encode().decode(),
        )

    def _producer(self, **options: Any) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=self.kafka, max_request_size=MAX_RECORD_BYTES, linger_ms=5, **options
        )

    def _session(self, stream: int, closed: Closed, log: int) -> tuple[Session, bytes]:
        _, value = delivered(closed, self.group, stream, 1, log)
        return msgspec.structs.replace(parse_session(value), data=[]), value
