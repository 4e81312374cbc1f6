"""The faults of a chaos run: each strikes while a commit or a post is under way, and returns its evidence.

A fault is a coroutine function; it returns what it did and how many things it hit. It polls for what it
causes; where it sleeps, that is how long the fault itself lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from shared.errors import BatonError
from shared.model.head import Head
from tests.e2e.chaos_ground import Ground, Struck
from tests.e2e.chaos_leaving import (
    add_consumer,
    cut_handovers,
    drain_by_request,
    drain_consumer,
    drain_late,
    expire_while_claiming,
    swallow_claims,
    swallow_handovers,
)
from tests.e2e.chaos_servers import cut_off, kill, pause
from tests.e2e.chaos_stored import damage_znodes, fail_after_opening, rewind_streams
from tests.e2e.fleet import ACK_TIMEOUT_S, ZOOKEEPER_TIMEOUT_S
from tests.e2e.proxy import END_TXN, PRODUCE
from tests.waiting import until

DELAYS_S = (0.05, 0.4)
SUSPECTED_WITHIN_S = 10.0
FLOOD = 1_200
"""Sessions of one fragment: about six parts of a commit for each stream (`SMALL_COMMIT_BYTES`)."""


async def kill_consumer(ground: Ground) -> Struck:
    """SIGKILL during a commit; restarted at once, or when others have its streams."""
    world = ground.world
    async with ground.victim() as victim:
        consumer = world.consumer(victim.index)
        await ground.at_a_commit(lambda: consumer.signal(signal.SIGKILL), of=victim.index)
        await consumer.ended()
        at_once = ground.rng.random() < 0.5
        if not at_once:
            await world.claimed(without=victim.index)
        world.start_consumer(victim.index)
    back = "at once" if at_once else "when others had them"
    return Struck(f"consumer-{victim.index} with {victim.streams} streams, back {back}", victim.streams)


async def stop_consumer(ground: Ground) -> Struck:
    """SIGSTOP during a commit until others own its streams, then SIGCONT: a zombie."""
    world = ground.world
    async with ground.victim() as victim:
        consumer = world.consumer(victim.index)
        await ground.at_a_commit(lambda: consumer.signal(signal.SIGSTOP), of=victim.index)
        await world.claimed(without=victim.index)
        consumer.signal(signal.SIGCONT)
    return Struck(f"consumer-{victim.index}, until others had its {victim.streams} streams", victim.streams)


async def suspect_consumer(ground: Ground) -> Struck:
    """A consumer's port refuses connections while it lives: others believe it dead, and it joins again."""
    world = ground.world
    async with ground.victim() as victim:
        (link,) = world.links_of(victim.index).http.each
        since = world.log_ends
        await ground.at_a_commit(link.vanish, of=victim.index)
        # a member that has just started may not have seen the port open, so it suspects nobody
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SUSPECTED_WITHIN_S):
                await world.claimed(without=victim.index)
        # it may find its node gone before its port answers, or after
        if ground.rng.random() < 0.5:
            await asyncio.sleep(ground.rng.uniform(0.2, 2.0))
        await link.listen()
        await world.ready(f"consumer-{victim.index}")
    suspicions = sum(
        line["suspect"] == f"consumer-{victim.index}" for line in world.logged("member suspected", since)
    )
    what = f"consumer-{victim.index}, until others had its {victim.streams} streams"
    return Struck(what, suspicions and victim.streams)


async def signal_in_commit(ground: Ground, place: str, number: signal.Signals) -> Struck:
    """A consumer signals itself at that place of a commit (`crashing_consumer.py`).

    Killed, it comes back; stopped, it resumes when others own its streams: a zombie with a commit to finish.
    """
    world = ground.world
    async with ground.victim() as victim:
        consumer = world.consumer(victim.index)
        consumer.signal(signal.SIGKILL)
        await consumer.ended()
        world.start_consumer(victim.index, crash=f"{place}:{ground.rng.randint(1, 4)}:{number.name}")
        if number == signal.SIGSTOP:
            await consumer.stopped()
            await world.claimed(without=victim.index)
            consumer.signal(signal.SIGCONT)
        else:
            assert await consumer.ended() == -number, world.tail()
            world.start_consumer(victim.index)
    return Struck(f"consumer-{victim.index} got {number.name} {place}", 1)


async def huge_commit(ground: Ground) -> Struck:
    """A marker closes thousands of sessions at once; an owner dies while it commits them in parts."""
    world, load = ground.world, ground.load
    await load.flood(FLOOD)
    async with ground.victim() as victim:
        consumer = world.consumer(victim.index)
        before = await _heads(ground)
        marks = await load.leap()
        is_killed = ground.rng.random() < 0.5
        if is_killed:
            await ground.at_a_commit(lambda: consumer.signal(signal.SIGKILL), of=victim.index)
            await consumer.ended()
            world.start_consumer(victim.index)
    # without a victim: an operator may have to restart any owner until all streams commit
    await world.committed(marks)
    commits = sum(head.seq - before[stream].seq for stream, head in (await _heads(ground)).items())
    killed = f", consumer-{victim.index} killed" if is_killed else ""
    return Struck(f"a marker closed {FLOOD} sessions; {commits} commits until then{killed}", commits)


async def _heads(ground: Ground) -> Mapping[int, Head]:
    """The stored heads, once all can be read."""
    found: dict[int, Head] = {}

    async def are_read() -> bool:
        with contextlib.suppress(BatonError):
            found.update(await ground.world.where.heads())
        return len(found) == ground.world.where.streams

    await until(are_read, lambda: f"heads {found}:\n{ground.world.tail()}")
    return found


async def kill_producer(ground: Ground) -> Struck:
    """SIGKILL with requests in flight; their clients retry."""
    producer, ledger = ground.world.services["producer"], ground.load.ledger
    in_flight = 0

    def strike() -> None:
        nonlocal in_flight
        in_flight = ledger.in_flight
        producer.signal(signal.SIGKILL)

    await ground.at_a_request([ground.world.links["producer"].kafka], PRODUCE, strike)
    await producer.ended()
    producer.start()
    return Struck(f"with {in_flight} requests in flight", in_flight)


async def cut_kafka(ground: Ground) -> Struck:
    """Resets all connections of the services to Kafka while commits are in flight."""
    links = [*ground.kafka_links(), ground.world.links["producer"].kafka]
    cut: list[int] = []
    commits = await ground.at_a_commit(lambda: cut.extend(link.cut() for link in links))
    return Struck(f"{sum(cut)} connections with {commits} commits in flight", commits)


async def cut_zookeeper(ground: Ground) -> Struck:
    """Refuses one consumer every connection to ZooKeeper until others own its streams."""
    async with ground.victim() as victim:
        link = ground.world.links_of(victim.index).zookeeper
        await ground.at_a_commit(link.cut_off, of=victim.index)
        await ground.world.claimed(without=victim.index)
        link.accept()
    return Struck(
        f"of consumer-{victim.index}, until others had its {victim.streams} streams", victim.streams
    )


async def delay_kafka(ground: Ground) -> Struck:
    """Delays every message between consumers and Kafka."""
    links = ground.kafka_links()
    await ground.at_a_commit()
    delay_s, before = ground.rng.uniform(*DELAYS_S), sum(link.delayed for link in links)
    for link in links:
        link.delay(delay_s)
    await asyncio.sleep(3.0)  # how long it lasts
    for link in links:
        link.delay(0.0)
    delayed = sum(link.delayed for link in links) - before
    return Struck(f"by {delay_s:.2f} s, {delayed} pieces", delayed)


async def swallow_commits(ground: Ground) -> Struck:
    """The answers to commits of one consumer are lost: it must find out whether they took effect."""
    async with ground.victim() as victim:
        link = ground.world.links_of(victim.index).kafka
        before = link.swallowed[END_TXN]
        link.swallow(END_TXN)
        await until(lambda: link.swallowed[END_TXN] > before, lambda: f"no commit:\n{ground.world.tail()}")
        swallowed, mute = link.swallowed[END_TXN] - before, link.mute
        link.swallow_no_more()
        is_cut = ground.rng.random() < 0.3
        if not is_cut:
            await until(lambda: link.mute < mute, lambda: f"it still waits:\n{ground.world.tail()}")
        link.drop()
    ended = "then cut" if is_cut else "until it timed out"
    return Struck(f"{swallowed} of consumer-{victim.index}, {ended}", swallowed)


async def swallow_acknowledgements(ground: Ground) -> Struck:
    """Kafka stores what the producer sends, but the acknowledgement is lost: clients post it again."""
    link, ledger = ground.world.links["producer"].kafka, ground.load.ledger
    before, refused = link.swallowed[PRODUCE], ledger.answers["503"]
    link.swallow(PRODUCE)
    await until(
        lambda: ledger.answers["503"] > refused and link.swallowed[PRODUCE] > before,
        lambda: f"nothing refused: {ground.load}",
    )
    link.drop()
    swallowed = link.swallowed[PRODUCE] - before
    return Struck(f"{swallowed}, until the producer said 503", swallowed)


FAULTS: Mapping[str, Callable[[Ground], Awaitable[Struck]]] = {
    "kill a consumer": kill_consumer,
    "kill before offsets": partial(signal_in_commit, place="before_offsets", number=signal.SIGKILL),
    "kill before commit": partial(signal_in_commit, place="before_commit", number=signal.SIGKILL),
    "kill after commit": partial(signal_in_commit, place="after_commit", number=signal.SIGKILL),
    "stop a consumer": stop_consumer,
    "suspect a consumer": suspect_consumer,
    "stop before commit": partial(signal_in_commit, place="before_commit", number=signal.SIGSTOP),
    "drain a consumer": drain_consumer,
    "drain by request": drain_by_request,
    "add a consumer": add_consumer,
    "kill the producer": kill_producer,
    "stop Kafka": partial(pause, kind="kafka", patience_s=ACK_TIMEOUT_S),
    "kill Kafka": partial(kill, kind="kafka"),
    "cut off Kafka": partial(cut_off, kind="kafka"),
    "stop ZooKeeper": partial(pause, kind="zookeeper", patience_s=ZOOKEEPER_TIMEOUT_S),
    "kill ZooKeeper": partial(kill, kind="zookeeper"),
    "cut off ZooKeeper": partial(cut_off, kind="zookeeper"),
    "cut Kafka": cut_kafka,
    "cut ZooKeeper": cut_zookeeper,
    "delay Kafka": delay_kafka,
    "swallow commits": swallow_commits,
    "swallow claims": swallow_claims,
    "swallow handovers": swallow_handovers,
    "cut handovers": cut_handovers,
    "swallow acks": swallow_acknowledgements,
    "drain too late": drain_late,
    "huge commit": huge_commit,
    "rewind streams": rewind_streams,
    "damage znodes": damage_znodes,
    "expire in claims": expire_while_claiming,
    "fail after opening": fail_after_opening,
}
