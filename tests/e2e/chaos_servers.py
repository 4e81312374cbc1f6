"""Faults of Kafka's and ZooKeeper's servers: one dies, stands still, or cannot be reached by any service.

Where there are three, the two others go on: leaders change, and replicas fall behind and catch up. Two of a
kind are never away together.
"""

from __future__ import annotations

import asyncio

from tests.e2e.chaos_ground import Ground, Struck

AWAY_S = (1.0, 5.0)


async def pause(ground: Ground, kind: str, patience_s: float) -> Struck:
    """SIGSTOP for longer than others wait: Kafka's silence refuses posts, ZooKeeper's ends leases."""
    lasts_s = ground.rng.uniform(1.2, 2.0) * patience_s
    async with ground.server(kind) as (number, paused):
        commits = await ground.at_a_commit(paused.pause)
        await asyncio.sleep(lasts_s)
        left = await _left(ground, kind)
        paused.resume()
    return Struck(f"{number} for {lasts_s:.1f} s with {commits} commits in flight{left}", commits)


async def kill(ground: Ground, kind: str) -> Struck:
    """SIGKILL, and a new start on what is on its disk: at once, or when it has been away for a while."""
    away_s = ground.rng.uniform(*AWAY_S) if ground.rng.random() < 0.5 else 0.0
    async with ground.server(kind) as (number, killed):
        commits = await ground.at_a_commit(killed.kill)
        await asyncio.sleep(away_s)
        left = await _left(ground, kind) if away_s else ""
        await asyncio.to_thread(killed.start)
    return Struck(f"{number} for {away_s:.1f} s with {commits} commits in flight{left}", commits)


async def cut_off(ground: Ground, kind: str) -> Struck:
    """One server refuses all services, but serves the others of its kind."""
    lasts_s = ground.rng.uniform(*AWAY_S)
    async with ground.server(kind) as (number, _):
        links = ground.world.links_to(kind, number)
        count = 0

        def take_away() -> None:
            nonlocal count
            for link in links:
                link.is_away = True
                count += link.cut()

        await ground.at_a_commit(take_away)
        await asyncio.sleep(lasts_s)
        for link in links:
            link.is_away = False
    return Struck(f"{number} with {count} connections for {lasts_s:.1f} s", count)


async def _left(ground: Ground, kind: str) -> str:
    """What the others say while one is away; nothing where it was alone."""
    group = ground.world.servers[kind]
    return f"; {await group.shrunk()}" if len(group.nodes) > 1 else ""
