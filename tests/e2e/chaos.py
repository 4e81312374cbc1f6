"""A chaos run: a load over HTTP, faults one after the other, the healing, and the judgement.

The seed decides what is posted, which faults strike in which order, whom, and for how long; the moments
still vary. The run prints everything as it happens. Between two faults something is acknowledged and
something is committed, so that each strikes a pipeline at work.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from shared.errors import BatonError
from shared.model.events import parse_event
from tests.e2e.chaos_faults import FAULTS
from tests.e2e.chaos_ground import Ground
from tests.e2e.chaos_judge import judge_ledger
from tests.e2e.chaos_load import LARGEST_BATCH, Load
from tests.e2e.chaos_world import STREAMS, World, chaos_world
from tests.e2e.fleet import SETTINGS
from tests.e2e.readers import judge_log
from tests.topics import records_of
from tests.waiting import until

CATCH_UP_PER_S = 4_000
CATCH_UP_TIMEOUT_S = AUDIT_TIMEOUT_S = 900.0
"""For a million fragments on two cores."""
ALONE = frozenset({"rewind streams", "drain too late"})
"""The first one's streams wait for the operator, who must be free to restart any owner, another fault's
victim too. The second one hides every other consumer from control, where another fault waits to see them
fail, while it waits itself for a commit that the other fault prevents.
"""
TRIES = 4
"""A fault that hits nothing (another one may be in its way) strikes again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The size of a run: each fault strikes `rounds` times, `at_once` of them together.

    At least `fragments` are posted, `per_s` of them while faults strike, in requests of up to `batch`.
    """

    fragments: int
    per_s: float
    rounds: int
    at_once: int
    consumers: int = 3
    batch: int = LARGEST_BATCH
    nodes: int = 1
    """Kafka brokers, and ZooKeeper servers."""
    is_audited: bool = True
    """Whether Spark judges as well, which takes half a minute."""
    faults: tuple[str, ...] = tuple(FAULTS)


class Run:
    """One chaos run, which prints what happens."""

    def __init__(self, world: World, load: Load, seed: int) -> None:
        self._world = world
        self._load = load
        self._seed = seed
        self._busy: set[int] = set()
        self._begun_s = time.monotonic()
        self._acknowledged = self._committed = 0
        self.struck: dict[str, int] = {}
        self.found: dict[str, object] = {}
        """What `summary` quotes, by name."""

    def report(self, what: str) -> None:
        """Prints one line."""
        print(f"{time.monotonic() - self._begun_s:6.1f} s  {what}", flush=True)

    async def storm(self, plan: Plan) -> None:
        """Strikes each fault `rounds` times in the seed's order; in between the pipeline must be at work."""
        rng = random.Random(self._seed)
        for turn in range(plan.rounds):
            names = rng.sample(plan.faults, len(plan.faults))
            for first in range(0, len(names), plan.at_once):
                at_work = await self.until_at_work()
                self.report(at_work)
                together = names[first : first + plan.at_once]
                async with asyncio.TaskGroup() as tasks:
                    for name in together:
                        if name not in ALONE:
                            tasks.create_task(self._strike(name, turn), name=name)
                for name in together:
                    if name in ALONE:
                        await self._strike(name, turn)
        await self.until_at_work()

    async def _strike(self, name: str, turn: int) -> None:
        """Strikes one fault; what it does depends on the seed, not on other faults."""
        ground = Ground(self._world, self._load, random.Random(f"{self._seed} {name} {turn}"), self._busy)
        for _ in range(TRIES):
            begun_s = time.monotonic()
            struck = await FAULTS[name](ground)
            self.report(f"{name:18} {struck.what} ({time.monotonic() - begun_s:.1f} s)")
            if struck.evidence:
                break
        assert struck.evidence, f"{name} hit nothing in {TRIES} attempts"
        self.struck[name] = self.struck.get(name, 0) + 1

    async def until_at_work(self) -> str:
        """Returns once more was acknowledged and more was committed since the last call."""
        before = self._acknowledged, self._committed
        now = before

        async def is_so() -> bool:
            nonlocal now
            with contextlib.suppress(BatonError):
                now = self._load.ledger.acknowledged, sum((await self._world.positions()).values())
            return now[0] > before[0] and now[1] > before[1]

        await until(is_so, lambda: f"stands still at {now}:\n{self._world.tail()}")
        self._acknowledged, self._committed = now
        more = now[0] - before[0], now[1] - before[1]
        return f"{more[0]} more fragments acknowledged, {more[1]} committed"

    async def settle(self) -> None:
        """Closes all sessions, waits until everything is committed, and stops all consumers in order."""
        ends: dict[int, int] = {}

        async def is_marked() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                ends.update(await self._load.end_of_time())
            return bool(ends)

        await until(is_marked, lambda: f"no markers:\n{self._world.tail()}")
        await self._world.committed(ends)
        self.report(f"lag 0; {self._load}")
        await self._world.leave()

    async def judge(self, fragments: int) -> list[str]:
        """What is wrong; empty when nothing is."""
        where, ledger = self._world.where, self._load.ledger
        logs = {stream: await where.log(stream) for stream in range(STREAMS)}
        delivered = await where.delivered()
        wrong = judge_ledger(ledger, delivered)
        for stream, log in logs.items():
            own = [session for session in delivered if session.stream == stream]
            wrong += await asyncio.to_thread(judge_log, stream, log, own, SETTINGS)
        records = sum(len(log) for log in logs.values())
        found = sum(session.fragments for session in delivered)
        self.report(
            f"{records} records, {found} fragments in {len(delivered)} sessions; wrong: {wrong or 'nothing'}"
        )
        events = [parse_event(record.value) for record in await records_of(where.kafka, where.names.events)]
        handovers = [event for event in events if event.kind == "handover"]
        warm = sum(bool(event.warm) for event in handovers)
        opened = Counter(event.warm for event in events if event.kind == "claim")
        self.report(f"events: {dict(Counter(event.kind for event in events))}, {warm} handovers from memory")
        changes = await self._world.kafka.leader_changes()
        self.found |= {
            "fragments": found,
            "sessions": len(delivered),
            "changes of leaders": changes,
            "handovers": f"{warm} of {len(handovers)} live",
            "openings": f"{opened[True]} warm and {opened[False]} cold",
        }
        if not warm:
            wrong.append("no handover was live")
        if ledger.acknowledged < fragments * 0.95:
            wrong.append(f"only {ledger.acknowledged} fragments acknowledged")
        if records - STREAMS <= found:
            wrong.append("no repeat was stored: nothing was posted again after it had got through")
        return wrong

    async def audit(self) -> list[str]:
        """What Spark's audit finds wrong, run by control; empty when nothing is."""
        run: dict[str, Any] = {}

        async def has_ended() -> bool:
            nonlocal run
            run = (await control.get(f"/runs/{begun['id']}")).json()
            return run["state"] not in ("starting", "running")

        async with httpx.AsyncClient(base_url=self._world.control_url, timeout=AUDIT_TIMEOUT_S) as control:
            begun = (await control.post("/jobs/audit/runs")).json()
            await until(has_ended, lambda: f"{run}", AUDIT_TIMEOUT_S)
        assert run["state"] == "succeeded", run
        result = run["result"]
        faults = ("missing", "overdue", "extra", "different")
        names = (*faults, "judged", "delivered", "open", "not_judged")
        found = {name: result[name] for name in names}
        self.report(f"audit: {found}")
        self.found["audit"] = ", ".join(f"{number} {name}" for name, number in found.items())
        is_right = not any(found[name] for name in (*faults, "open", "not_judged"))
        return [] if is_right and found["judged"] == found["delivered"] > 0 else [f"audit: {result}"]

    def summary(self) -> str:
        """The run in one line, as docs/reliability.md quotes it."""
        minutes = (time.monotonic() - self._begun_s) / 60
        what = ", ".join(f"{number} {name}" for name, number in self.found.items() if isinstance(number, int))
        kinds = ", ".join(f"{name} {number}" for name, number in sorted(self.struck.items()))
        return (
            f"seed {self._seed}: {minutes:.1f} minutes, {what}; "
            f"{sum(self.struck.values())} faults ({kinds}); "
            f"handovers: {self.found.get('handovers')}; openings: {self.found.get('openings')}; "
            f"audit: {self.found.get('audit')}"
        )


async def chaos(home: Path, seed: int, plan: Plan) -> None:
    """A whole run, which ends with its summary; AssertionError when anything is wrong."""
    async with chaos_world(home, plan.consumers, nodes=plan.nodes) as world:
        load = Load(world.producer_url, seed, plan.per_s, batch=plan.batch)
        run = Run(world, load, seed)
        run.report(f"seed {seed}: {plan}")
        async with asyncio.TaskGroup() as tasks:
            posting = tasks.create_task(load.run(), name="load")
            await run.storm(plan)
            await world.heal()
            load.finish(plan.fragments, CATCH_UP_PER_S)
            await until(
                posting.done, lambda: f"still posting: {load}\n{world.tail()}", within_s=CATCH_UP_TIMEOUT_S
            )
        await run.settle()
        wrong = await run.judge(plan.fragments)
        if plan.is_audited:
            wrong += await run.audit()
        assert not wrong, wrong
        assert run.struck == dict.fromkeys(plan.faults, plan.rounds)
        run.report(run.summary())
