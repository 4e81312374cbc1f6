"""Finds what partitions need before they can be written to: their leaders, and ids for idempotent producers.

One task looks for all of them, as long as there are any. A producer id serves all partitions that have not
used up their trust in it, so an outage of hundreds of partitions costs one new id. Used by `sender.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from aiokafka.errors import for_code

from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import Cluster
from shared.kafka.send.outgoing import Outgoing
from shared.kafka.wire.records import Producer
from shared.kafka.wire.transactions import InitProducerId

logger = logging.getLogger(__name__)

_NO_TIMEOUT_MS = 60_000
"""The request has a time-out of transactions, which an id without transactions does not use."""


class Search:
    """Calls `found` with each partition after it has looked; where that is False, it looks again.

    `trouble`: why Kafka could not be asked the last time; empty if it could.
    """

    def __init__(self, cluster: Cluster, found: Callable[[Outgoing], bool]) -> None:
        self.trouble = ""
        self._cluster = cluster
        self._found = found
        self._producer: Producer | None = None
        self._sought: dict[Outgoing, float] = {}
        """Partition → when to look for it."""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Search for {len(self._sought)} partitions as producer {self._producer}>"

    def equip(self, outgoing: Outgoing) -> int | None:
        """Gives it a producer id if it needs one; the node id of its leader. None: one of them is missing."""
        leader = self._cluster.leader(*outgoing.place)
        is_equipped = self._producer is not None and outgoing.adopt(self._producer)
        return leader.node if leader is not None and is_equipped else None

    def seek(self, outgoing: Outgoing, after_s: float = 0.0) -> None:
        """Looks for what it needs, once the time is over."""
        self._sought[outgoing] = asyncio.get_running_loop().time() + after_s
        self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="sender: search")

    def forget(self, outgoing: Outgoing) -> None:
        """Looks for it no longer."""
        self._sought.pop(outgoing, None)

    def is_sought(self, outgoing: Outgoing) -> bool:
        """Whether it is being looked for."""
        return outgoing in self._sought

    async def close(self) -> None:
        """Ends the search; never raises."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._sought:
                self._changed.clear()
                now_s = asyncio.get_running_loop().time()
                due = [outgoing for outgoing, at_s in self._sought.items() if at_s <= now_s]
                if due:
                    await self._look(due)
                    continue
                try:
                    async with asyncio.timeout_at(min(self._sought.values())):
                        await self._changed.wait()
                except TimeoutError:
                    continue
        finally:
            self._task = None

    async def _look(self, due: Iterable[Outgoing]) -> None:
        try:
            await self._cluster.refresh({outgoing.place[0] for outgoing in due})
            if any(one.producer is None and one.spent == self._producer for one in due):
                self._producer = await self._new_producer()
            self.trouble = ""
        except KafkaUnavailable as error:
            self.trouble = error.detail
        except Exception as error:  # a fault of ours: without the search nothing would be sent any more
            logger.exception("looking for leaders failed")
            self.trouble = repr(error)
        for outgoing in due:
            is_sought = self._sought.pop(outgoing, None) is not None  # or was it forgotten meanwhile?
            if is_sought and not self._found(outgoing):
                self.seek(outgoing, outgoing.backoff.next_s())

    async def _new_producer(self) -> Producer:
        answer = await self._cluster.ask_any(InitProducerId(None, _NO_TIMEOUT_MS))
        if answer.error_code:
            raise KafkaUnavailable("no producer id", cause=for_code(answer.error_code).__name__)
        return answer.producer_id, answer.producer_epoch
