"""What may happen in a chaos run: each fault strikes while a commit or a post is under way, and can show it.

A fault is a coroutine function of the run; it returns what it did and its evidence: how much it hit. It waits
for what it causes by polling; where it sleeps, that is how long the fault itself lasts.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from tests.e2e.chaos_load import Load
from tests.e2e.chaos_world import ACK_TIMEOUT_S, MOST_CONSUMERS, ZOOKEEPER_TIMEOUT_S, World
from tests.e2e.fleet import poll
from tests.e2e.proxy import END_TXN, MULTI, PRODUCE, Proxy

FEWEST_CONSUMERS = 2
DELAYS_S = (0.05, 0.4)


@dataclass(frozen=True, slots=True)
class Struck:
    """What a fault did, in words, and how many things it hit."""

    told: str
    evidence: int


@dataclass(frozen=True, slots=True)
class Ground:
    """What faults work on."""

    world: World
    load: Load
    rng: random.Random

    async def owner(self) -> tuple[int, int]:
        """A consumer that owns streams, chosen at random, and how many it owns; all streams are owned."""
        owners = list((await self.world.claimed()).values())
        victim = self.rng.choice(sorted(set(owners)))
        return victim, owners.count(victim)

    def kafka_links(self) -> list[Proxy]:
        """The ways of all consumers to Kafka."""
        return [self.world.links_of(index).kafka for index in self.world.consumers]

    async def at_a_commit(self, links: Iterable[Proxy]) -> int:
        """Returns in the moment in which commits are under way on these links; how many."""
        links = list(links)
        return await at_a_request(links, END_TXN)


async def at_a_request(links: list[Proxy], kind: int) -> int:
    """Returns in the moment in which such requests are under way on these links; how many."""
    while not (count := sum(link.in_flight(kind) for link in links)):
        watches = [asyncio.ensure_future(link.until_request(kind)) for link in links]
        try:
            await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.wait(watches)
    return count


async def until(reached: Callable[[], bool], told: Callable[[], str]) -> None:
    """Returns when `reached` says so."""

    async def is_so() -> bool:
        return reached()

    await poll(is_so, told)


async def kill_consumer(ground: Ground) -> Struck:
    """SIGKILL in the midst of a commit; back at once, or when others have its streams."""
    world = ground.world
    victim, owned = await ground.owner()
    await ground.at_a_commit([world.links_of(victim).kafka])
    world.consumer(victim).signal(signal.SIGKILL)
    await world.consumer(victim).ended()
    at_once = ground.rng.random() < 0.5
    if not at_once:
        await world.claimed(without=victim)
    world.start_consumer(victim)
    back = "at once" if at_once else "when others had its streams"
    return Struck(f"consumer-{victim} with {owned} streams, back {back}", owned)


async def stop_consumer(ground: Ground) -> Struck:
    """SIGSTOP in the midst of a commit until others own its streams, then SIGCONT: a zombie."""
    world = ground.world
    victim, owned = await ground.owner()
    await ground.at_a_commit([world.links_of(victim).kafka])
    world.consumer(victim).signal(signal.SIGSTOP)
    await world.claimed(without=victim)
    world.consumer(victim).signal(signal.SIGCONT)
    return Struck(f"consumer-{victim}, until others had its {owned} streams", owned)


async def drain_consumer(ground: Ground) -> Struck:
    """SIGTERM: it gives up all its streams, and leaves in order."""
    world = ground.world
    if len(world.consumers) <= FEWEST_CONSUMERS:
        await add_consumer(ground)
    victim, owned = await ground.owner()
    await ground.at_a_commit([world.links_of(victim).kafka])
    world.consumer(victim).signal(signal.SIGTERM)
    assert await world.consumer(victim).ended() == 0, world.told()
    await world.claimed(without=victim)
    return Struck(f"consumer-{victim} with {owned} streams", owned)


async def add_consumer(ground: Ground) -> Struck:
    """One more; it gets streams while the others work."""
    world = ground.world
    if len(world.consumers) == MOST_CONSUMERS:
        await drain_consumer(ground)
    index = next(index for index in range(MOST_CONSUMERS) if index not in world.consumers)
    await ground.at_a_commit(ground.kafka_links())
    world.start_consumer(index)
    owned = list((await world.claimed(by=index)).values()).count(index)
    return Struck(f"consumer-{index}, which got {owned} streams", owned)


async def kill_producer(ground: Ground) -> Struck:
    """SIGKILL with requests in flight; their clients try again."""
    world, ledger = ground.world, ground.load.ledger
    await at_a_request([world.links["producer"].kafka], PRODUCE)
    in_flight = ledger.in_flight
    world.services["producer"].signal(signal.SIGKILL)
    await world.services["producer"].ended()
    world.start_producer()
    return Struck(f"with {in_flight} requests in flight", in_flight)


async def pause_kafka(ground: Ground) -> Struck:
    """SIGSTOP for longer than a producer waits: posts are refused, commits hang."""
    commits = await ground.at_a_commit(ground.kafka_links())
    lasts_s = ground.rng.uniform(1.2, 1.8) * ACK_TIMEOUT_S
    ground.world.kafka.pause()
    await asyncio.sleep(lasts_s)
    ground.world.kafka.resume()
    return Struck(f"for {lasts_s:.1f} s with {commits} commits in flight", commits)


async def kill_kafka(ground: Ground) -> Struck:
    """SIGKILL, and a new start on what is on its disk."""
    commits = await ground.at_a_commit(ground.kafka_links())
    ground.world.kafka.kill()
    await asyncio.to_thread(ground.world.kafka.start)
    return Struck(f"with {commits} commits in flight", commits)


async def pause_zookeeper(ground: Ground) -> Struck:
    """SIGSTOP for longer than the time-out: leases end, everybody pauses."""
    commits = await ground.at_a_commit(ground.kafka_links())
    lasts_s = ground.rng.uniform(1.2, 2.0) * ZOOKEEPER_TIMEOUT_S
    ground.world.zookeeper.pause()
    await asyncio.sleep(lasts_s)
    ground.world.zookeeper.resume()
    return Struck(f"for {lasts_s:.1f} s with {commits} commits in flight", commits)


async def kill_zookeeper(ground: Ground) -> Struck:
    """SIGKILL, and a new start on what is on its disk."""
    commits = await ground.at_a_commit(ground.kafka_links())
    ground.world.zookeeper.kill()
    await asyncio.to_thread(ground.world.zookeeper.start)
    return Struck(f"with {commits} commits in flight", commits)


async def cut_kafka(ground: Ground) -> Struck:
    """All connections of the services to Kafka are reset while commits are in flight."""
    commits = await ground.at_a_commit(ground.kafka_links())
    count = sum(link.cut() for link in [*ground.kafka_links(), ground.world.links["producer"].kafka])
    return Struck(f"{count} connections with {commits} commits in flight", commits)


async def cut_zookeeper(ground: Ground) -> Struck:
    """One consumer gets no connection to ZooKeeper until others own its streams."""
    world = ground.world
    victim, owned = await ground.owner()
    link = world.links_of(victim).zookeeper
    await ground.at_a_commit([world.links_of(victim).kafka])
    link.refuses = True
    link.cut()
    await world.claimed(without=victim)
    link.heal()
    return Struck(f"of consumer-{victim}, until others had its {owned} streams", owned)


async def delay_kafka(ground: Ground) -> Struck:
    """Everything that consumers and Kafka say to each other is late."""
    links = ground.kafka_links()
    await ground.at_a_commit(links)
    delay_s, before = ground.rng.uniform(*DELAYS_S), sum(link.delayed for link in links)
    for link in links:
        link.delay_s = delay_s
    await asyncio.sleep(3.0)  # how long it lasts
    for link in links:
        link.delay_s = 0.0
    delayed = sum(link.delayed for link in links) - before
    return Struck(f"by {delay_s:.2f} s, {delayed} pieces", delayed)


async def swallow_commits(ground: Ground) -> Struck:
    """The answers to commits of one consumer are lost: it must find out by itself what came of them."""
    world = ground.world
    victim, _ = await ground.owner()
    link = world.links_of(victim).kafka
    before = link.swallowed[END_TXN]
    link.swallow(END_TXN)
    await until(lambda: link.swallowed[END_TXN] > before, lambda: f"no commit:\n{world.told()}")
    swallowed = link.swallowed[END_TXN] - before
    mute = link.mute
    link.swallow_no_more()
    if is_cut := ground.rng.random() < 0.3:
        link.drop()
    else:
        await until(lambda: link.mute < mute, lambda: f"consumer-{victim} still waits:\n{world.told()}")
        link.drop()
    ended = "then cut" if is_cut else "until it gave up"
    return Struck(f"{swallowed} of consumer-{victim}, {ended}", swallowed)


async def swallow_claims(ground: Ground) -> Struck:
    """One consumer drains, and the answers to the claims of the others are lost, or come late."""
    world, rng = ground.world, ground.rng
    if len(world.consumers) <= FEWEST_CONSUMERS:
        await add_consumer(ground)
    victim, _ = await ground.owner()
    links = [world.links_of(index).zookeeper for index in world.consumers if index != victim]
    before = sum(link.swallowed[MULTI] for link in links)

    def swallowed() -> int:
        return sum(link.swallowed[MULTI] for link in links) - before

    await ground.at_a_commit([world.links_of(victim).kafka])
    for link in links:
        link.swallow(MULTI)
    world.consumer(victim).signal(signal.SIGTERM)
    await until(lambda: swallowed() > 0, lambda: f"nobody claims:\n{world.told()}")
    lasts_s, is_late = rng.choice((0.3, 1.5 * ZOOKEEPER_TIMEOUT_S)), rng.random() < 0.5
    await asyncio.sleep(lasts_s)  # how long it lasts: shorter than a lease, or longer
    for link in links:
        link.deliver() if is_late else link.drop()
    await world.consumer(victim).ended()
    world.start_consumer(victim)
    told = f"{swallowed()} when consumer-{victim} left, for {lasts_s:.1f} s, "
    return Struck(told + ("then delivered" if is_late else "then lost"), swallowed())


async def swallow_acknowledgements(ground: Ground) -> Struck:
    """Kafka keeps what the producer sends, and the producer does not hear of it: clients post it again."""
    link, ledger = ground.world.links["producer"].kafka, ground.load.ledger
    before, refused = link.swallowed[PRODUCE], ledger.answers["503"]
    link.swallow(PRODUCE)
    await until(lambda: ledger.answers["503"] > refused, lambda: f"nothing refused: {ground.load}")
    link.drop()
    swallowed = link.swallowed[PRODUCE] - before
    return Struck(f"{swallowed}, until the producer said 503", swallowed)


FAULTS: Mapping[str, Callable[[Ground], Awaitable[Struck]]] = {
    "kill a consumer": kill_consumer,
    "stop a consumer": stop_consumer,
    "drain a consumer": drain_consumer,
    "add a consumer": add_consumer,
    "kill the producer": kill_producer,
    "stop Kafka": pause_kafka,
    "kill Kafka": kill_kafka,
    "stop ZooKeeper": pause_zookeeper,
    "kill ZooKeeper": kill_zookeeper,
    "cut Kafka": cut_kafka,
    "cut ZooKeeper": cut_zookeeper,
    "delay Kafka": delay_kafka,
    "swallow commits": swallow_commits,
    "swallow claims": swallow_claims,
    "swallow acks": swallow_acknowledgements,
}
