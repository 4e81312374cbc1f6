"""Faults while consumers join and leave on purpose: they hit handovers and claims."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

import httpx

from shared.errors import Unavailable
from tests.e2e.chaos_ground import FEWEST_CONSUMERS, Ground, Struck, Victim
from tests.e2e.chaos_world import MOST_CONSUMERS
from tests.e2e.fleet import ZOOKEEPER_TIMEOUT_S
from tests.e2e.proxies import Proxies
from tests.e2e.proxy import COMPLETE, END_TXN, MULTI, OFFER
from tests.waiting import until

CUT_OFF_S = 1.0


async def add_consumer(ground: Ground) -> Struck:
    """One more; it gets streams while the others work."""
    world = ground.world
    if len({*world.consumers, *ground.busy}) == MOST_CONSUMERS:
        await drain_consumer(ground)
    with ground.newcomer() as index:
        await ground.at_a_commit()
        world.start_consumer(index)
        owned = list((await world.claimed(by=index)).values()).count(index)
    return Struck(f"consumer-{index}, which got {owned} streams", owned)


async def drain_consumer(ground: Ground) -> Struck:
    """SIGTERM: it hands over all its streams, and leaves."""
    async with _leaving(ground) as victim:
        await _leave(ground, victim)
    return Struck(f"consumer-{victim.index} with {victim.streams} streams", victim.streams)


async def drain_by_request(ground: Ground) -> Struck:
    """An operator asks control, and control the consumer, to drain; then it is stopped."""
    world = ground.world

    async with _leaving(ground) as victim, httpx.AsyncClient(base_url=world.control_url) as control:
        wish = {"kind": "drain", "member": f"consumer-{victim.index}"}
        answer: httpx.Response | None = None

        async def is_accepted() -> bool:
            nonlocal answer
            with contextlib.suppress(httpx.TransportError):
                answer = await control.post("/operations", json=wish)
            return answer is not None and answer.status_code == 202

        await until(is_accepted, lambda: f"not accepted: {answer and answer.text}:\n{world.tail()}")
        await world.claimed(without=victim.index)
        assert world.consumer(victim.index).is_running, world.tail()
        await _leave(ground, victim)
        world.start_consumer(victim.index)
    return Struck(f"consumer-{victim.index} with {victim.streams} streams", victim.streams)


async def swallow_handovers(ground: Ground) -> Struck:
    """A consumer drains, and the answers to its offers or to what completes them are lost, or come late."""
    kind = ground.rng.choice((OFFER, COMPLETE))
    what = "offers" if kind == OFFER else "commits"
    async with _leaving(ground) as victim:
        links = [ground.world.links_of(index).http for index in _others(ground, victim)]
        return await _swallow(ground, victim, links, kind, what)


async def swallow_claims(ground: Ground) -> Struck:
    """A consumer drains, and the answers to the claims of the others are lost, or come late."""
    async with _leaving(ground) as victim:
        links = [ground.world.links_of(index).zookeeper for index in _others(ground, victim)]
        return await _swallow(ground, victim, links, MULTI, "claims")


async def cut_handovers(ground: Ground) -> Struck:
    """A consumer drains, and cannot reach the others from the moment it completes a handover."""
    async with _leaving(ground) as victim:
        links = [ground.world.links_of(index).http for index in _others(ground, victim)]

        def cut_off() -> None:
            for link in links:
                link.cut_off()

        consumer = ground.world.consumer(victim.index)
        consumer.signal(signal.SIGTERM)
        cut = await ground.at_a_request(links, COMPLETE, cut_off, unless=lambda: not consumer.is_running)
        await asyncio.sleep(CUT_OFF_S)  # how long it lasts
        for link in links:
            link.accept()
        await _leave(ground, victim)
        ground.world.start_consumer(victim.index)
    return Struck(f"{cut} when consumer-{victim.index} left", cut)


async def drain_late(ground: Ground) -> Struck:
    """A consumer drains, but its commits and the others do not answer until BATON_RELEASE_S is over."""
    world = ground.world
    async with _leaving(ground) as victim:
        consumer, links = world.consumer(victim.index), world.links_of(victim.index)
        consumer.signal(signal.SIGKILL)
        await consumer.ended()
        world.start_consumer(victim.index, release_s=1)
        await world.claimed(by=victim.index)
        since, http = consumer.log_end, [world.links_of(index).http for index in _others(ground, victim)]
        for link in http:
            link.cut_off()
        # a worker stops only when its commit has ended
        before = links.kafka.swallowed[END_TXN]
        links.kafka.swallow(END_TXN)
        await until(lambda: links.kafka.swallowed[END_TXN] > before, lambda: f"no commit:\n{world.tail()}")
        consumer.signal(signal.SIGTERM)
        await consumer.ended()
        for link in http:
            link.accept()
        await world.claimed(without=victim.index)
        links.kafka.drop()
        world.start_consumer(victim.index)
    late = [len(line["streams"]) for line in consumer.logged("drain timed out", since)]
    return Struck(f"consumer-{victim.index} left with {sum(late)} streams still claimed", sum(late))


async def expire_while_claiming(ground: Ground) -> Struck:
    """Two consumers die, one comes back, and its ZooKeeper session ends while its claims queue."""
    world = ground.world
    names, group = world.where.names, world.where.group
    async with ground.victims(2) as (gone, victim):
        consumers = [world.consumer(one.index) for one in (gone, victim)]

        def kill() -> None:
            for one in consumers:
                one.signal(signal.SIGKILL)

        await ground.at_a_commit(kill)
        for one in consumers:
            await one.ended()
        link, since = world.links_of(victim.index).zookeeper, consumers[1].log_end
        joined_and_claims = asyncio.ensure_future(
            ground.at_a_request([link], MULTI, link.cut_off, skip=1)  # the first one joins the group
        )
        world.start_consumer(victim.index)
        await joined_and_claims

        async def is_expired() -> bool:
            with contextlib.suppress(Unavailable):
                return await world.znodes.get(names.member(group, f"consumer-{victim.index}")) is None
            return False

        await until(is_expired, lambda: f"its session does not end:\n{world.tail()}")
        link.accept()
        world.start_consumer(gone.index)
        await world.claimed()
        expired = "ZooKeeper session expired"
        await until(
            lambda: consumers[1].logged(expired, since), lambda: f"it has not noticed:\n{world.tail()}"
        )
    unknown = {line["stream"] for line in consumers[1].logged("outcome unknown", since)}
    what = f"session of consumer-{victim.index} ended while its claims of {len(unknown)} streams waited"
    return Struck(what, len(unknown))


@contextlib.asynccontextmanager
async def _leaving(ground: Ground) -> AsyncIterator[Victim]:
    """A victim that may leave because enough others stay; yielded during one of its commits."""
    if len(ground.free) <= FEWEST_CONSUMERS:
        await add_consumer(ground)
    async with ground.victim() as victim:
        await ground.at_a_commit(of=victim.index)
        yield victim


async def _leave(ground: Ground, victim: Victim) -> None:
    """Sends SIGTERM unless it was sent; returns once the process has ended and its claims are gone."""
    consumer = ground.world.consumer(victim.index)
    if not consumer.has_sigterm:
        consumer.signal(signal.SIGTERM)
    assert await consumer.ended() == 0, ground.world.tail()
    await ground.world.claimed(without=victim.index)


def _others(ground: Ground, victim: Victim) -> list[int]:
    return [index for index in ground.world.consumers if index != victim.index]


async def _swallow(ground: Ground, victim: Victim, links: list[Proxies], kind: int, what: str) -> Struck:
    world, rng = ground.world, ground.rng
    before = sum(link.swallowed[kind] for link in links)

    def swallowed() -> int:
        return sum(link.swallowed[kind] for link in links) - before

    for link in links:
        link.swallow(kind)
    consumer = world.consumer(victim.index)
    consumer.signal(signal.SIGTERM)
    # where another fault keeps it from handing over, it leaves without
    await until(
        lambda: swallowed() > 0 or not consumer.is_running, lambda: f"it does not leave:\n{world.tail()}"
    )
    lasts_s, is_late = rng.choice((0.3, 1.5 * ZOOKEEPER_TIMEOUT_S)), rng.random() < 0.5
    await asyncio.sleep(
        lasts_s
    )  # how long it lasts: shorter than a lease and the patience of a donor, or longer
    for link in links:
        link.deliver() if is_late else link.drop()
    await _leave(ground, victim)
    world.start_consumer(victim.index)
    ending = "delivered" if is_late else "lost"
    what = f"{swallowed()} {what} when consumer-{victim.index} left, for {lasts_s:.1f} s, then {ending}"
    return Struck(what, swallowed())
