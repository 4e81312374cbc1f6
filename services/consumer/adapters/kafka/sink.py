"""Writes the commits of owned streams to Kafka: one transactional producer per stream.

A commit is one transaction: the checkpoint records, the sessions closed since the last one, and the safe
offset with the head as its metadata. Starting a stream's producer fences every earlier owner's, so only after
`open` do `head` and `load` read the truth. What a broker left undecided of an earlier transaction
(docs/adr/0017) is decided first. `delivery` decides whether the sessions go inside the transaction, before it
or after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from services.consumer.adapters.kafka.checkpoints import KafkaCheckpoints
from services.consumer.adapters.kafka.clients import SharedClients
from services.consumer.core.commits.checkpoint import (
    Checkpoint,
    check_reaches,
    folding_records,
    is_settled,
    new_stream,
)
from services.consumer.core.commits.commit import Commit
from services.consumer.ports import Fenced
from services.consumer.stream.slices import in_slices
from shared.errors import KafkaUnavailable
from shared.kafka.read.offsets import delete_records
from shared.kafka.record import Record as WireRecord
from shared.kafka.send.transactional import GroupOffset, ProducerFenced, TransactionalWriter
from shared.model.fragments import encode_marker
from shared.model.group import GroupSettings
from shared.model.head import Head
from shared.together import both

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 15.0
"""A predecessor that died inside a transaction delays InitProducerId by about 30 ms."""
COMMIT_TIMEOUT_S = 10.0
TRANSACTION_TIMEOUT_MS = 12_000
"""Longer than a commit may take, short enough that a dead owner does not delay readers for long."""
TICK_TIMEOUT_S = 2.0
"""A tick that is late may be written all the same: it is only a proposal."""


class KafkaSessionSink:
    """One stream's sink (port `SessionSink`)."""

    def __init__(
        self, shared: SharedClients, stream: int, settings: GroupSettings, session_partitions: int
    ) -> None:
        self._shared = shared
        self._stream = stream
        self._settings = settings
        names, group = shared.names, shared.group
        self._fragments = names.fragments(stream), 0
        self._checkpoints = KafkaCheckpoints(shared, stream)
        self._sessions = names.sessions(group), stream % session_partitions
        self._kafka_group = names.kafka_group(group)
        self._writer = TransactionalWriter(
            shared.cluster, names.transactional_id(group, stream), timeout_ms=TRANSACTION_TIMEOUT_MS
        )

    def __repr__(self) -> str:
        return f"<KafkaSessionSink {self._shared.group}/{self._stream}>"

    async def prepare(self) -> None:
        async with self._within(START_TIMEOUT_S):
            await self._writer.prepare()

    async def open(self) -> None:
        async with self._within(START_TIMEOUT_S):
            try:
                await self._writer.open()
            except ProducerFenced as error:
                raise Fenced(f"{self!r}: {error!r}") from error

    async def head(self) -> Head:
        stored, (stable, end) = await both(self._shared.head(self._stream), self._checkpoints.tail())
        head = new_stream(await self._checkpoints.first() if end else 0).head if stored is None else stored
        check_reaches(head, end)
        if is_settled(head, stable, end):
            return head
        head, is_committed = await self._checkpoints.newest(head, stable)
        logger.warning("undecided transaction found, ending it", extra={"stream": self._stream, "head": head})
        await self._settle(head, is_committed=is_committed)
        await self._checkpoints.settled(end)
        return head

    async def load(self, head: Head) -> Checkpoint:
        if head.checkpoint_from < 0:
            return Checkpoint(head=head)
        records = [pair async for pair in self._checkpoints.records(head.checkpoint_from, head.newest)]
        return await in_slices(folding_records(head, records, self._settings.repeat_ms))

    @property
    def records_read(self) -> int:
        return self._checkpoints.records_read

    async def commit(self, commit: Commit) -> list[int]:
        delivery = self._settings.delivery
        with self._transacting():
            if delivery == "at_least_once":
                await self._deliver_apart(commit.sessions)
            async with self._within(COMMIT_TIMEOUT_S):
                offsets = await self._transaction(commit, with_sessions=delivery == "exactly_once")
            if delivery == "at_most_once":
                await self._deliver_apart(commit.sessions)
            return offsets

    async def tick(self) -> None:
        try:
            async with within(TICK_TIMEOUT_S, lambda: "Kafka has not acknowledged"):
                await self._shared.sender.send(self._fragments, [(None, encode_marker(None), [])])
        except KafkaUnavailable as error:
            logger.warning("tick not written", extra={"stream": self._stream, "why": error.detail})

    async def trim(self, below: int) -> None:
        try:
            async with within(COMMIT_TIMEOUT_S, lambda: "Kafka has not deleted them"):
                await delete_records(self._shared.cluster, {self._checkpoints.place: below})
        except KafkaUnavailable as error:
            logger.warning("checkpoints not trimmed", extra={"stream": self._stream, "why": error.detail})

    async def close(self) -> None:
        """Nothing to close: the connections are shared."""

    @contextlib.contextmanager
    def _transacting(self) -> Iterator[None]:
        """Raises Fenced, or KafkaUnavailable that says that the outcome is unknown."""
        try:
            yield
        except ProducerFenced as error:
            raise Fenced(f"{self!r}: {error!r}") from error
        except KafkaUnavailable as error:
            raise KafkaUnavailable(f"{self!r}, outcome of a commit unknown", cause=error.detail) from error

    def _within(self, timeout_s: float) -> contextlib.AbstractAsyncContextManager[None]:
        return within(timeout_s, lambda: self._writer.waits_for)

    async def _transaction(self, commit: Commit, *, with_sessions: bool) -> list[int]:
        """Commits in one transaction; returns the offsets of the checkpoint records.

        The checkpoint is written before the sessions: so the remains of a broken commit can be seen there.
        """
        checkpoint: list[WireRecord] = [(None, raw, []) for raw in commit.records]
        sessions = commit.sessions if with_sessions else ()
        places = (self._checkpoints.place, checkpoint), (self._sessions, sessions)
        await self._writer.add([place for place, records in places if records])
        offsets = await self._writer.write(self._checkpoints.place, checkpoint)
        # one by one as they are encoded: a commit may have very many
        await self._writer.write(self._sessions, ((key, value, []) for key, value in sessions))
        await self._writer.commit_offset(self._stored(commit.head_at(offsets)))
        await self._writer.end(is_commit=True)
        return offsets

    async def _settle(self, head: Head, *, is_committed: bool) -> None:
        """Decides what an earlier transaction left undecided, by an empty one over the same partitions."""
        with self._transacting():
            async with self._within(COMMIT_TIMEOUT_S):
                await self._writer.add([self._checkpoints.place, self._sessions])
                await self._writer.commit_offset(self._stored(head))
                await self._writer.end(is_commit=is_committed)

    def _stored(self, head: Head) -> GroupOffset:
        return GroupOffset(
            group=self._kafka_group,
            partition=self._fragments,
            offset=head.safe_offset,
            metadata=head.metadata(),
        )

    async def _deliver_apart(self, sessions: Sequence[tuple[bytes, bytes]]) -> None:
        """Sends the sessions outside the transaction, by the sender that all streams share."""
        await self._shared.sender.send(self._sessions, ((key, value, []) for key, value in sessions))


@contextlib.asynccontextmanager
async def within(timeout_s: float, waits_for: Callable[[], str]) -> AsyncIterator[None]:
    """Bounds the time of the block. Raises KafkaUnavailable that says for how long what was missing."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        raise KafkaUnavailable(f"Kafka took longer than {timeout_s:g} s", cause=waits_for()) from error
