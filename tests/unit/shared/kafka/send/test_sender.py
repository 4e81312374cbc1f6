"""Sending without transactions: each record once, in order, in bounded time; what fails, fails alone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import Cluster
from shared.kafka.record import Record
from shared.kafka.send.departures import COHORT_BYTES
from shared.kafka.send.outcome import Delivery, Loss
from shared.kafka.send.pace import SLOW_ROUND_S
from shared.kafka.send.produce_errors import DUPLICATE, NEEDS_NEW_PRODUCER, NOT_STORED, REJECTED, TRY_AGAIN
from shared.kafka.send.sender import ENCODED_AT_ONCE, MISSING_S, Sender
from tests.fakes.kafka_produce import ProducingKafka
from tests.fakes.virtual_time import until, virtual_time

A, B = ("a", 0), ("b", 0)
DELIVER_S = 4.0
CODES = {-1, *range(1, 140)}
"""Every error code of Kafka, and some that it does not have yet."""
UNLISTED = sorted(CODES - TRY_AGAIN - REJECTED - NEEDS_NEW_PRODUCER - {DUPLICATE})
LATE_BY_S = 0.5
"""A loss is reported at most so long after its time."""


class Answers:
    """What became of each value: an offset, or the kind of loss; and when."""

    def __init__(self) -> None:
        self.of: dict[Any, int | str] = {}
        self.reasons: dict[Any, str] = {}
        self.at_s: dict[Any, float] = {}

    def stored(self, indexes: Sequence[Any], first_offset: int) -> None:
        for at, index in enumerate(indexes):
            self._note(index, first_offset + at if first_offset >= 0 else -1)

    def lost(self, indexes: Sequence[Any], loss: Loss) -> None:
        for index in indexes:
            self._note(index, "unknown" if loss.is_unknown else loss.kind)
            self.reasons[index] = loss.reason

    def _note(self, index: Any, outcome: int | str) -> None:
        assert index not in self.of, "one outcome each"
        self.of[index] = outcome
        self.at_s[index] = asyncio.get_running_loop().time()


class World(ProducingKafka):
    """Brokers with topics a and b, and a sender to them."""

    def __init__(self, brokers: int = 1, **options: Any) -> None:
        super().__init__(brokers)
        for topic in "ab":
            self.create(topic)
        self.connect_s = 0.0
        self.cluster = Cluster("fake:1", self.connect)
        self.batches: list[tuple[str, str]] = []
        options = {"deliver_s": DELIVER_S, "max_batch_bytes": 10_000} | options
        self.sender = Sender(
            self.cluster,
            on_stored=lambda place: self.batches.append((place[0], "stored")),
            on_lost=lambda place, loss: self.batches.append(
                (place[0], "unknown" if loss.is_unknown else loss.kind)
            ),
            **options,
        )
        self.answers = Answers()

    async def connect(self, host: str, port: int) -> Any:
        """A connection, after a while."""
        await asyncio.sleep(self.connect_s)
        return await super().connect(host, port)

    def send(self, place: tuple[str, int], *values: bytes) -> None:
        """Adds the values; each is its own index, and its own request."""
        for value in values:
            assert self.sender.add(place, [(None, value, [])], [value], self.answers) == 1

    async def outcome(self, *values: bytes) -> list[int | str]:
        """What became of the values."""
        await until(lambda: all(value in self.answers.of for value in values), within_s=3 * DELIVER_S)
        return [self.answers.of[value] for value in values]

    async def sent(self, place: tuple[str, int], *values: bytes) -> list[int | str]:
        """Adds the values, and waits until it is known what became of them."""
        self.send(place, *values)
        return await self.outcome(*values)


@contextlib.asynccontextmanager
async def sending(brokers: int = 1, **options: Any) -> AsyncIterator[World]:
    world = World(brokers, **options)
    try:
        yield world
    finally:
        await world.sender.close()
        await world.cluster.close()


@virtual_time
async def test_records_are_stored_in_order_at_the_reported_offsets() -> None:
    """With key, headers and timestamp; many requests share a batch."""
    async with sending() as world:
        assert await world.sent(A, b"0") == [0]
        world.sender.add(A, [(b"k", b"1", [("h", b"v")])], [b"1"], world.answers, now_ms=5)
        world.send(A, *(b"%d" % n for n in range(2, 300)))

        assert await world.outcome(*(b"%d" % n for n in range(1, 300))) == list(range(1, 300))
        assert world.values("a") == [b"%d" % n for n in range(300)]
        record = world.records("a")[1]
        assert (record.key, record.headers, record.timestamp) == (b"k", [("h", b"v")], 5)
        assert len(world.requests) < 5


@virtual_time
async def test_records_span_batches_and_keep_their_offsets() -> None:
    """One request's records may fill several batches; a record larger than a batch has one of its own."""
    values = [b"%03d" % n + b"x" * (40_000 if n == 50 else 600) for n in range(100)]
    async with sending() as world:
        world.send(A, b"before")
        shares = world.sender.add(A, ((None, value, []) for value in values), range(100), world.answers)
        await until(lambda: len(world.answers.of) == 101)

        assert shares == len(world.requests) > 5
        assert [world.answers.of[n] for n in range(100)] == list(range(1, 101))
        assert world.values("a") == [b"before", *values]


@virtual_time
async def test_other_tasks_run_while_many_records_are_encoded() -> None:
    """No turn of the loop encodes more than a slice; the records keep their order."""
    encoded = 0

    def records() -> Iterator[Record]:
        nonlocal encoded
        for encoded in range(1, 5 * ENCODED_AT_ONCE + 2):
            yield None, b"%d" % encoded, []

    async with sending() as world:
        task = asyncio.create_task(world.sender.send(A, records()))
        at_turn = [0]
        for _ in range(20):  # turns of the loop, before time passes
            await asyncio.sleep(0)
            at_turn.append(encoded)
        await task

        assert max(after - before for before, after in itertools.pairwise(at_turn)) == ENCODED_AT_ONCE
        assert world.values("a") == [b"%d" % n for n in range(1, 5 * ENCODED_AT_ONCE + 2)]


@virtual_time
async def test_a_record_that_cannot_be_written_fails_the_whole_call() -> None:
    """Also if others of the call are stored."""
    async with sending(max_batch_bytes=100) as world:
        await world.sender.send(A, [])
        world.late_refusals[A].append(-1)
        with pytest.raises(KafkaUnavailable, match="rejects the batch"):
            await world.sender.send(A, [(None, b"x" * 100, []) for _ in range(3)])


@virtual_time
async def test_partitions_of_a_broker_travel_together() -> None:
    """One request for all that is ready; at most one is under way, and those behind it grow meanwhile."""
    async with sending() as world:
        await world.sent(A, b"first")
        await world.sent(B, b"first b")
        world.delay_s = 0.01
        for number in range(20):
            world.send(A, b"a%d" % number)
            world.send(B, b"b%d" % number)
            await asyncio.sleep(0.001)
        await world.outcome(b"a19", b"b19")

        assert world.requests[2:] == [(1, [A, B])] * 3
        assert world.most_in_flight == 1


@virtual_time
async def test_more_requests_may_be_on_their_way() -> None:
    """A parameter; a partition still has one batch on its way."""
    async with sending(brokers=2, at_once=3) as world:
        await world.sent(A, b"first")
        await world.sent(B, b"first b")
        world.requests.clear()
        world.delay_s = 0.01
        world.send(A, b"1")
        await asyncio.sleep(0.001)
        world.send(A, b"2")
        world.send(B, b"1 b")
        await world.outcome(b"1", b"2", b"1 b")

        assert world.requests == [(1, [A]), (1, [B]), (1, [A])]


@virtual_time
async def test_a_request_has_a_bounded_size() -> None:
    """What does not fit leaves with the next one."""
    size, batches = 350_000, 12
    async with sending(max_batch_bytes=size) as world:
        for number in range(batches):
            world.create("t", number)
        await world.cluster.refresh({"t"})
        for number in range(batches):
            world.send(("t", number), b"%d" % number + b"x" * size)
        await until(lambda: len(world.answers.of) == batches)

        assert max(len(places) for _, places in world.requests) <= COHORT_BYTES // size + 1
        assert len(world.requests) == 2


@pytest.mark.parametrize("code", sorted(TRY_AGAIN))
@virtual_time
async def test_a_passing_error_is_tried_again(code: int) -> None:
    """Whether the broker gave it before it appended the batch or after: it is stored once."""
    async with sending() as world:
        world.partitions[A].refusals += [code, code]
        world.late_refusals[A] += [code]
        world.send(A, b"1", b"2")
        world.send(B, b"b")

        assert await world.outcome(b"1", b"2", b"b") == [0, 1, 0]
        assert await world.sent(A, b"3") == [2]
        assert world.values("a") == [b"1", b"2", b"3"]
        assert world.producers == 1


@pytest.mark.parametrize("code", sorted(REJECTED))
@virtual_time
async def test_a_rejected_batch_fails_alone(code: int) -> None:
    """At once; the next one takes over its sequence numbers, so no producer id is lost."""
    async with sending() as world:
        await world.sent(A, b"0")
        world.partitions[A].refusals.append(code)
        world.send(A, b"1", b"2")
        world.send(B, b"b")

        assert await world.outcome(b"1", b"2", b"b") == ["rejected", "rejected", 0]
        assert await world.sent(A, b"3") == [1]
        assert world.producers == 1
        assert world.batches == [("a", "stored"), ("a", "rejected"), ("b", "stored"), ("a", "stored")]


@pytest.mark.parametrize("code", UNLISTED)
@pytest.mark.parametrize("is_late", [False, True])
@virtual_time
async def test_after_an_unknown_outcome_that_partition_alone_changes_its_producer(
    code: int, is_late: bool
) -> None:
    """The next batch could pass for a repetition of the one in doubt; other partitions are not concerned."""
    async with sending() as world:
        world.send(B, b"b0")
        await world.sent(A, b"0")
        (world.late_refusals[A] if is_late else world.partitions[A].refusals).append(code)
        world.send(B, b"b1")
        assert await world.sent(A, b"1") == ["unknown"]
        assert await world.outcome(b"b1") == [1]
        await world.sent(A, b"2")
        await world.sent(B, b"b2")

        assert world.values("a") == [b"0", *([b"1"] if is_late else []), b"2"]
        assert {producer for topic_id, _, producer in world.known if topic_id == b_id(world)} == {1_001}
        assert world.producers == 2


def b_id(world: World) -> bytes:
    return world.partitions[B].topic_id


@pytest.mark.parametrize("code", sorted(NOT_STORED - TRY_AGAIN))
@virtual_time
async def test_a_refusal_after_a_doubtful_trip_is_an_unknown_outcome(code: int) -> None:
    """The first trip may have stored it: nothing may be promised, and its numbers cannot be used again."""
    async with sending() as world:
        await world.sent(A, b"0")
        world.late_refusals[A].append(7)
        world.partitions[A].refusals.clear()
        world.send(A, b"1")
        await until(lambda: len(world.requests) == 2)
        world.partitions[A].refusals.append(code)

        assert await world.outcome(b"1") == ["unknown"]
        assert await world.sent(A, b"2") == [2]
        assert world.values("a") == [b"0", b"1", b"2"]


@virtual_time
async def test_brokers_that_forgot_a_producer_get_another() -> None:
    """Nothing was appended, so the batch is sent again under the new id; others change when they must."""
    async with sending() as world:
        await world.sent(A, b"0")
        await world.sent(B, b"b0")
        world.forget_producers()
        world.send(A, b"1")
        world.send(B, b"b1")

        assert await world.outcome(b"1", b"b1") == [1, 1]
        assert world.producers == 2


@pytest.mark.parametrize("lost", [1, 2, 3])
@virtual_time
async def test_a_lost_answer_doubles_nothing(lost: int) -> None:
    """The connection breaks after the broker has stored the batches; it recognizes the repetition."""
    async with sending() as world:
        await world.sent(A, b"0")
        world.lost_answers = lost
        began_s = asyncio.get_running_loop().time()
        world.send(A, b"1")
        world.send(B, b"b")
        await asyncio.sleep(0.0015)
        world.send(A, b"2")

        assert await world.outcome(b"1", b"b", b"2") == [1, 0, 2]
        assert world.values("a") == [b"0", b"1", b"2"]
        assert world.values("b") == [b"b"]
        assert asyncio.get_running_loop().time() - began_s < SLOW_ROUND_S


@virtual_time
async def test_a_repetition_that_is_too_old_counts_as_stored() -> None:
    """The broker says only that it has the batch, not where."""
    async with sending() as world:
        world.partitions[A].refusals.append(46)

        assert await world.sent(A, b"1", b"2") == [-1, -1]


@virtual_time
async def test_a_record_ages_from_its_arrival() -> None:
    """Behind others that are each in time; what has not left by then is dropped and never sent."""
    async with sending(max_batch_bytes=100) as world:
        await world.sent(A, b"first")
        world.delay_s = 0.4 * DELIVER_S
        values = [b"%d" % n + b"x" * 100 for n in range(6)]
        world.send(A, *values)

        began_s = asyncio.get_running_loop().time()
        found = await world.outcome(*values)
        await asyncio.sleep(10 * DELIVER_S)
        assert found == [1, 2, "unknown", "late", "late", "late"]
        assert world.values("a") == [b"first", *values[:3]]
        assert all(at_s - began_s < DELIVER_S + LATE_BY_S for at_s in world.answers.at_s.values())
        assert "has not acknowledged for 4 s" in world.answers.reasons[values[5]]
        assert await world.sent(A, b"after") == [4]


@virtual_time
async def test_a_mute_broker_costs_what_is_under_way_and_one_producer_id() -> None:
    """All is reported in time; with the broker's return everything goes on."""
    async with sending() as world:
        for number in range(100):
            world.create("t", number)
        await asyncio.gather(*(world.sent(("t", n), b"%d" % n) for n in range(100)))
        world.is_mute = True
        began_s = asyncio.get_running_loop().time()
        for number in range(100):
            world.send(("t", number), b"m%d" % number)
            world.send(("t", number), b"n%d" % number)
        await world.outcome(*(b"%s%d" % (name, n) for n in range(100) for name in (b"m", b"n")))
        took_s = asyncio.get_running_loop().time() - began_s
        world.is_mute = False
        world.wake()
        after = [await world.sent(("t", n), b"after %d" % n) for n in range(100)]

        assert took_s < DELIVER_S + LATE_BY_S
        assert all(isinstance(found, int) for (found,) in after)
        assert world.producers <= 2
        assert len(world.connections) < 20


@virtual_time
async def test_no_broker_at_all_loses_nothing_that_could_be_known() -> None:
    """Nothing has left, so all of it is late, not unknown."""
    async with sending() as world:
        await world.sent(A, b"0")
        world.brokers.clear()
        world.cut(1)

        assert await world.sent(A, b"1", b"2") == ["late", "late"]
        world.brokers.append(1)
        assert await world.sent(A, b"3") == [1]
        assert world.producers == 1


@virtual_time
async def test_without_a_broker_from_the_start_records_are_late() -> None:
    """Nobody has said that there is no such topic."""
    async with sending() as world:
        world.brokers.clear()

        assert await world.sent(A, b"1") == ["late"]


@virtual_time
async def test_what_is_late_while_its_connection_is_made_is_not_sent() -> None:
    """It was reported as not stored."""
    async with sending() as world:
        await world.sent(A, b"0")
        world.connect_s = DELIVER_S + 0.5
        world.cut(1)

        assert await world.sent(A, b"1") == ["late"]
        await asyncio.sleep(10 * DELIVER_S)
        assert world.values("a") == [b"0"]


@virtual_time
async def test_what_is_late_before_it_could_leave_is_not_sent() -> None:
    """Behind a request that is slow; the sender goes on."""
    async with sending(deliver_s=0.2) as world:
        await world.sent(A, b"0")
        await world.sent(B, b"b0")
        world.delay_s = 0.6
        world.send(A, b"1")
        await asyncio.sleep(0.01)
        world.send(B, b"b1")

        assert await world.outcome(b"1", b"b1") == ["unknown", "late"]
        world.delay_s = 0.0
        await asyncio.sleep(1)
        assert await world.sent(B, b"b2") == [1]


@virtual_time
async def test_a_partition_that_has_recovered_is_tried_again_soon() -> None:
    """The pauses grow with the failures in a row."""
    async with sending() as world:
        world.partitions[A].refusals += [19] * 8
        await world.sent(A, b"0")
        world.partitions[A].refusals.append(19)
        began_s = asyncio.get_running_loop().time()
        await world.sent(A, b"1")

        assert asyncio.get_running_loop().time() - began_s < 0.1


@pytest.mark.parametrize("partitions", [1, 4])
@virtual_time
async def test_clients_that_wait_for_their_answers_fly_together(partitions: int) -> None:
    """Two halves that take turns would need two round trips for each record."""
    clients, loop = 32, asyncio.get_running_loop()
    async with sending(deliver_s=30) as world:
        for number in range(partitions):
            world.create("t", number)
            await world.sent(("t", number), b"%d" % number)
        world.delay_s = 0.003

        async def run(client: int) -> None:
            await asyncio.sleep(client % 2 * 0.002)
            for _ in range(300):
                delivery = Delivery()
                place = "t", client % partitions
                delivery.expect(world.sender.add(place, [(None, b"v", [])], [client], delivery))
                await delivery.done
                await asyncio.sleep(0.0002)

        began_s = loop.time()
        await asyncio.gather(*(run(client) for client in range(clients)))
        took_s = loop.time() - began_s

    assert took_s < 300 * 1.2 * 0.004


@virtual_time
async def test_a_partition_whose_replicas_lag_does_not_hold_up_the_others() -> None:
    """A broker that waits for replicas answers nothing else of that connection: the others have another."""
    async with sending() as world:
        await world.sent(A, b"0")
        await world.sent(B, b"b")
        world.lagging.add(A)
        world.send(A, b"1")
        await asyncio.sleep(0.01)  # else B would travel in the same request
        loop, slowest_s = asyncio.get_running_loop(), 0.0
        for number in range(100):
            began_s = loop.time()
            assert await world.sent(B, b"b%d" % number) == [number + 1]
            slowest_s = max(slowest_s, loop.time() - began_s)
            await asyncio.sleep(0.04)

        assert await world.outcome(b"1") == ["unknown"]
        assert slowest_s < 3 * SLOW_ROUND_S
        world.lagging.clear()
        assert await world.sent(A, b"2") == [2]
        assert world.values("a") == [b"0", b"1", b"2"]


@virtual_time
async def test_a_new_leader_is_found() -> None:
    """The old one says that it leads no more; the records go to the new one, in order."""
    async with sending(brokers=2) as world:
        await world.sent(A, b"0")
        world.partitions[A].leader = 2
        world.send(A, b"1")

        assert await world.outcome(b"1") == [1]
        assert await world.sent(A, b"2") == [2]
        assert [node for node, _ in world.requests][-2:] == [2, 2]


@virtual_time
async def test_a_frozen_broker_is_left_once_another_leads() -> None:
    """It never says so itself; long before its answer would be late, the batch goes to the new leader."""
    async with sending(brokers=2, deliver_s=60) as world:
        await world.sent(A, b"0")
        world.muted.add(1)
        world.send(A, b"1")
        reads = world.metadata_reads
        await asyncio.sleep(8)
        world.partitions[A].leader = 2

        assert await world.outcome(b"1") == [1]
        assert world.answers.at_s[b"1"] < 12
        assert world.metadata_reads - reads < 12
        world.muted.clear()
        world.wake()
        assert await world.sent(A, b"2") == [2]
        assert world.values("a") == [b"0", b"1", b"2"]


@virtual_time
async def test_a_mute_connection_is_left_in_time() -> None:
    """The broker may be well: the batch is sent again over another connection."""
    async with sending() as world:
        await world.sent(A, b"0")
        for connection in world.connections:
            await connection._turn.acquire()

        assert await world.sent(A, b"1") == [1]
        assert world.values("a") == [b"0", b"1"]


@virtual_time
async def test_a_topic_that_does_not_exist_is_noticed_soon() -> None:
    """A broker may not have heard of a new one yet; after that its records are refused, and only those."""
    async with sending() as world:
        world.brokers.clear()
        world.send(("none", 0), b"first")
        await asyncio.sleep(0.5)
        world.brokers.append(1)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        world.send(("new", 0), b"new")
        world.send(("none", 0), b"none")
        await world.sent(A, b"0")
        await asyncio.sleep(MISSING_S / 2)
        world.create("new")

        assert await world.outcome(b"new", b"none") == [0, "no-topic"]
        assert loop.time() - began_s < MISSING_S + 2 * LATE_BY_S
        assert world.answers.reasons[b"none"] == "there is no topic none"
        world.create("none")
        assert await world.sent(("none", 0), b"none at last") == [0]

        partition = world.partitions.pop(("new", 0))
        world.send(("new", 0), b"back")
        await asyncio.sleep(MISSING_S / 2)
        world.partitions["new", 0] = partition
        assert await world.outcome(b"back") == [1]


@virtual_time
async def test_records_wait_for_a_leader() -> None:
    """An election takes a while; nothing is lost by it."""
    async with sending() as world:
        world.partitions[A].leader = -1
        world.send(A, b"1")
        await asyncio.sleep(DELIVER_S / 2)
        world.partitions[A].leader = 1

        assert await world.outcome(b"1") == [0]


@virtual_time
async def test_records_wait_for_a_producer_id() -> None:
    """Whatever error they answer, it may pass."""
    for code in CODES:
        async with sending() as world:
            world.init_refusals += [code, code]

            assert await world.sent(A, b"1") == [0]


@virtual_time
async def test_a_closed_sender_reports_what_it_holds() -> None:
    """What is under way may be stored, what waits is not. It accepts nothing more."""
    async with sending() as world:
        await world.sent(A, b"0")
        world.is_mute = True
        world.send(A, b"1")
        await asyncio.sleep(0.1)
        world.send(A, b"2")
        await world.sender.close()

        assert [world.answers.of[value] for value in (b"1", b"2")] == ["unknown", "closed"]
        with pytest.raises(KafkaUnavailable):
            world.send(A, b"3")


@pytest.mark.parametrize("seed", range(20))
@virtual_time
async def test_whatever_happens_each_record_has_one_outcome_and_it_is_true(seed: int) -> None:
    """Stored ones are there once and in order; those that were refused or dropped are not there."""
    rng = random.Random(seed)
    places = [("a", 0), ("b", 0), ("c", 0), ("c", 1)]
    async with sending(brokers=3, max_batch_bytes=400, at_once=rng.choice([1, 2])) as world:
        for number in range(2):
            world.create("c", number, leader=number + 2)
        sent: dict[tuple[str, int], list[bytes]] = {place: [] for place in places}
        for step in range(400):
            place = rng.choice(places)
            value = b"%d" % step + b"x" * rng.choice([1, 50, 150])
            sent[place].append(value)
            world.send(place, value)
            await asyncio.sleep(rng.choice([0, 0, 0.001, 0.02, 0.1]))
            disturb(world, rng, rng.choice(places))
        world.is_mute = False
        world.lagging.clear()
        world.wake()
        await world.outcome(*(value for values in sent.values() for value in values))
        await asyncio.sleep(10 * DELIVER_S)

        for place, values in sent.items():
            log = world.values(*place)
            assert len(log) == len(set(log))
            stored = [value for value in values if isinstance(world.answers.of[value], int)]
            assert [value for value in log if value in set(stored)] == stored
            for value in values:
                outcome = world.answers.of[value]
                if isinstance(outcome, int) and outcome >= 0:
                    assert log[outcome] == value
                elif outcome in ("late", "rejected", "no-topic"):
                    assert value not in log


def disturb(world: World, rng: random.Random, place: tuple[str, int]) -> None:
    """Lets something go wrong, seldom."""
    codes = [*TRY_AGAIN, *REJECTED, -1, 99]
    match rng.randrange(60):
        case 0:
            world.partitions[place].refusals.append(rng.choice(codes))
        case 1:
            world.late_refusals[place].append(rng.choice([6, 7, 20, 56, -1]))
        case 2:
            world.lost_answers += 1
        case 3:
            world.cut(rng.choice([1, 2, 3]))
        case 4:
            world.partitions[place].leader = rng.choice([1, 2, 3, -1])
        case 5:
            world.lagging ^= {place}
        case 6:
            world.delay_s = rng.choice([0.0, 0.003, 0.05])
        case 7:
            world.is_mute = not world.is_mute
            world.wake()
        case 8:
            world.partitions[place].leader = 1
