"""Sends batches to brokers: what is ready for the same one leaves together, at the pace of its answers.

It decides nothing about a batch: `sender.py` says which partitions are ready, and hears how each trip ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import Cluster, Lane
from shared.kafka.send.outgoing import Batch, Outgoing, Trip
from shared.kafka.send.pace import Flight, Pace
from shared.kafka.wire.produce import ProduceRequest, ProduceResponse, Results

logger = logging.getLogger(__name__)

COHORT_BYTES: Final = 2 * 1024 * 1024
"""Encoding so much takes 1 ms with records of 1 KB, and 15 with the smallest. A batch may be larger."""
NO_ANSWER: Final = -2
"""In place of a broker's error code, below all of them: it has not answered."""


@dataclass(slots=True, eq=False)
class Cohort:
    """Batches that travel in one request."""

    broker: Broker
    flight: Flight
    trip: Trip
    batches: list[tuple[Outgoing, Batch]]


Landed = Callable[[Outgoing, Trip, int, int, str], None]
"""Hears how the trip of one partition's batch ended: error code, first offset, and why if `NO_ANSWER`."""


class Broker:
    """What is ready for one broker, over one lane."""

    def __init__(self, node: int, lane: Lane, pace: Pace) -> None:
        self.node = node
        self.lane: Lane = lane
        self.pace = pace
        self.ready: dict[Outgoing, None] = {}
        """In the order in which they became ready."""
        self.timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Broker {self.node} over {self.lane}: {len(self.ready)} ready, {self.pace!r}>"


class Departures:
    """The flights of one sender.

    `timeout_s`: how long an answer may take. `at_once`: how many requests may be on their way to one broker.
    """

    def __init__(self, cluster: Cluster, landed: Landed, *, timeout_s: float, at_once: int) -> None:
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._landed = landed
        self._timeout_s = timeout_s
        self._at_once = at_once
        self._brokers: dict[tuple[int, Lane], Broker] = {}
        self._broker_of: dict[Outgoing, Broker] = {}
        """The one to which the partition was sent last."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_woken = False

    def __repr__(self) -> str:
        return f"<Departures {list(self._brokers.values())}>"

    def make_ready(self, outgoing: Outgoing, node: int) -> None:
        """Sends the partition's next batch to that broker with its next cohort."""
        broker = self._broker(node, outgoing)
        broker.ready[outgoing] = None
        self._broker_of[outgoing] = broker
        broker.pace.waiting += outgoing.requests
        self._wake()

    def _broker(self, node: int, outgoing: Outgoing) -> Broker:
        """A broker that waits for one partition's replicas answers nothing else of that connection.

        So partitions that failed the last time have another one, as have all others while theirs is stuck.
        """
        usual = self._lane(node, "write")
        if not outgoing.is_sick and not usual.pace.is_stuck:
            return usual
        other = self._lane(node, "again")
        return other if outgoing.is_sick or not other.pace.is_stuck else usual

    def _lane(self, node: int, lane: Lane) -> Broker:
        broker = self._brokers.get((node, lane))
        if broker is None:
            broker = self._brokers[node, lane] = Broker(node, lane, Pace(self._at_once))
        return broker

    def is_ready(self, outgoing: Outgoing) -> bool:
        """Whether the partition's next batch waits to leave."""
        broker = self._broker_of.get(outgoing)
        return broker is not None and outgoing in broker.ready

    def arrive(self, outgoing: Outgoing) -> bool:
        """Another request waits for the partition; whether its next batch is ready."""
        broker = self._broker_of.get(outgoing)
        if broker is None:
            return False
        broker.pace.came += 1
        if outgoing not in broker.ready:
            return False
        broker.pace.waiting += 1
        if broker.pace.wait_s(self._loop.time()) == 0:
            self._wake()
        return True

    def withdraw(self, outgoing: Outgoing) -> None:
        """The partition is not ready any more."""
        broker = self._broker_of.get(outgoing)
        if broker is not None:
            broker.ready.pop(outgoing, None)

    def release_slow(self, now_s: float) -> None:
        """What is ready no longer waits for the slow flights."""
        for broker in list(self._brokers.values()):
            if broker.pace.release_slow(now_s):
                ready, broker.ready = broker.ready, {}
                for outgoing in ready:  # perhaps over the other lane
                    self.make_ready(outgoing, broker.node)

    async def close(self) -> None:
        """Ends all flights; nobody hears of them. Never raises."""
        for broker in self._brokers.values():
            broker.ready.clear()
            if broker.timer is not None:
                broker.timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _wake(self) -> None:
        if not self._is_woken:  # what else becomes ready in this turn of the loop leaves with it
            self._is_woken = True
            self._loop.call_soon(self._depart)

    def _depart(self) -> None:
        self._is_woken = False
        now_s = self._loop.time()
        for broker in self._brokers.values():
            # while it holds, the timer of `_count` wakes us
            while broker.ready and broker.pace.wait_s(now_s) == 0:
                self._launch(broker, now_s)

    def _launch(self, broker: Broker, now_s: float) -> None:
        trip, size, batches = Trip(broker.node), 0, list[tuple[Outgoing, Batch]]()
        while broker.ready and size < COHORT_BYTES:
            outgoing = next(iter(broker.ready))
            del broker.ready[outgoing]
            batch = outgoing.take_off(trip)
            size += batch.size
            batches.append((outgoing, batch))
        left = sum(outgoing.requests for outgoing in broker.ready)
        cohort = Cohort(broker, broker.pace.leave(now_s, left), trip, batches)
        task = self._loop.create_task(self._fly(cohort), name="sender")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fly(self, cohort: Cohort) -> None:
        results: Results = {}
        why = "the answer lacks it"
        try:
            results = await self._request(cohort)
        except KafkaUnavailable as error:
            why = error.detail
        except Exception as error:  # a fault of ours: it must not hold up these partitions forever
            logger.exception("sending to kafka failed")
            why = repr(error)
        for outgoing, _ in cohort.batches:
            self._landed(outgoing, cohort.trip, *results.get(outgoing.place, (NO_ANSWER, -1)), why)
        self._end(cohort, is_answered=bool(results))

    async def _request(self, cohort: Cohort) -> Results:
        """The broker's answer. Raises KafkaUnavailable."""
        channel = self._cluster.channel(cohort.broker.node, cohort.broker.lane)
        if not channel.is_connected:
            await channel.connect()
        # what has been decided about meanwhile is not sent
        batches = [(out.place, batch.data) for out, batch in cohort.batches if batch.trip is cohort.trip]
        if not batches:
            return {}
        cohort.trip.sent_s = self._loop.time()
        # the broker stops waiting for replicas before we stop waiting for the broker
        request = ProduceRequest(int(self._timeout_s * 500), batches)
        answer: ProduceResponse = await channel.request(request, self._timeout_s)
        return answer.results

    def _end(self, cohort: Cohort, *, is_answered: bool) -> None:
        broker = cohort.broker
        if not is_answered:
            broker.pace.failed(cohort.flight)
        elif counting_s := broker.pace.answered(cohort.flight, self._loop.time()):
            if broker.timer is not None:
                broker.timer.cancel()
            broker.timer = self._loop.call_later(counting_s, self._count, broker)
        self._wake()

    def _count(self, broker: Broker) -> None:
        broker.timer = None
        broker.pace.counted()
        self._depart()
