"""One run: a seed decides what clients, workers and the broker do; then all is healed, drained and judged."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.queue.core import snapshot as snapshots
from services.queue.core.commands import Ack, Configure, Dead, Lease, QueueSettings, Receipt, Seek, Until
from services.queue.core.fold import Leased
from tests.queue_simulation.ghost import Ghost
from tests.queue_simulation.reference import Place
from tests.queue_simulation.worker import Worker
from tests.queue_simulation.world import GAP, INCARNATION, World

snapshots.PART_BYTES = 150
IDS = 12
MOST_DRAINING = 400


@dataclass(frozen=True, slots=True)
class Run:
    """The outcome of a seed; `wrong` is "" for a good run."""

    seed: int
    wrong: str
    world: World


@dataclass(slots=True)
class Tally:
    """The sum of many runs; `wrong` has those that failed."""

    runs: int = 0
    wrong: list[tuple[int, str]] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Adds another sum."""
        self.runs += other.runs
        self.wrong += other.wrong
        self.happened += other.happened


def run(seed: int) -> Run:
    """The run of a seed: the same for the same seed and code."""
    rng = random.Random(f"{seed} queue")
    world = World(rng, partitions=rng.choice([1, 1, 2, 3]))
    try:
        _Course(world).run()
    except AssertionError as error:
        return Run(seed, str(error) or repr(error), world)
    return Run(seed, "", world)


def run_all(first: int, end: int) -> Tally:
    """The runs of these seeds."""
    tally = Tally()
    for seed in range(first, end):
        found = run(seed)
        tally.runs += 1
        tally.happened += found.world.happened
        if found.wrong:
            tally.wrong.append((seed, found.wrong))
    return tally


class _Course:
    """What happens in one run."""

    def __init__(self, world: World) -> None:
        self._world, self._rng = world, world.rng
        self._every = self._rng.choice([4, 9, 20, 10_000])
        self._receipts: list[Receipt] = []
        """In the hands of clients; good ones and stale ones."""
        self._lives = 0
        self._late: list[Worker] = []
        """Dead workers whose last records are still on their way."""
        self._settings = QueueSettings(
            partitions=world.partitions,
            max_attempts=self._rng.choice([0, 1, 2, 5]),
            repeat_ms=self._rng.choice([0, 20_000, 300_000]),
            incarnation=INCARNATION,
        )
        self._ghost = Ghost(world)
        if self._rng.random() < 0.2:  # between the creation of the topic and that of the queue
            self._ghost.write(())
        self._world.append(b"first", 1, [Configure(self._settings)], b"")
        self._workers = [self._new_worker() for _ in range(self._rng.randint(1, 3))]

    def run(self) -> None:
        """The whole run. Raises AssertionError if a promise is broken."""
        seldom: Sequence[tuple[Callable[[], None], float]] = [
            (self._kill, 0.5),
            (self._seek, 0.3),
            (self._purge, 0.15),
            (self._configure, 0.2),
        ]
        actions: Sequence[tuple[Callable[[], None], float]] = [
            (self._put, 2),
            (self._lease, 4),
            (self._ack, 3),
            (self._put_off, 1.5),
            (self._reject, 0.4),
            (self._read, 8),
            (self._deliver, 1),
            (lambda: self._ghost.write(self._receipts), 0.4),
            *seldom,
        ]
        weights = [weight for _, weight in actions]
        for _ in range(self._rng.choice([20, 40, 80, 200])):
            self._world.tick()
            self._rng.choices(actions, weights)[0][0]()
        self._heal()
        self._drain()
        self._judge()

    def _new_worker(self) -> Worker:
        self._lives += 1
        return Worker(self._world, f"w{self._lives}", self._handed, self._every)

    def _handed(self, leased: Leased) -> None:
        place = leased.receipt[:2]
        if self._world.items[place[0]][place[1]] == GAP:
            raise AssertionError(f"{place} is no item")
        # the answer may be lost on its way to the client
        if self._rng.random() < 0.9:
            self._receipts.append(leased.receipt)

    def _worker(self) -> Worker:
        return self._rng.choice(self._workers)

    def _put(self) -> None:
        for _ in range(self._rng.randint(1, 5)):
            roll = self._rng.random()
            id_ = GAP if roll < 0.1 else f"i{self._rng.randrange(IDS)}" if roll < 0.6 else ""
            self._rng.choice(self._world.items).append(id_)

    def _lease(self) -> None:
        worker = self._worker()
        counts = self._rng.choice([(1,), (1,), (3,), (10,), (1, 3)])
        ms = self._rng.choice([1_000, 30_000, 600_000])
        worker.submit([Lease(count, ms, worker.ends) for count in counts])

    def _some(self) -> tuple[Receipt, ...]:
        """Receipts of clients, of which most are not used again."""
        some = self._rng.sample(self._receipts, min(len(self._receipts), self._rng.randint(1, 3)))
        for one in some:
            if self._rng.random() < 0.8:
                self._receipts.remove(one)
        return tuple(some)

    def _ack(self) -> None:
        if some := self._some():
            self._worker().submit([Ack(some)])

    def _put_off(self) -> None:
        if some := self._some():
            self._receipts += [one for one in some if one not in self._receipts]
            how = self._rng.choice([(False, False), (True, False), (True, True), (False, False, True)])
            self._worker().submit([Until(some, self._rng.choice([0, 5_000, 60_000]), *how)])

    def _reject(self) -> None:
        if some := self._some():
            self._world.letters |= {one[:2] for one in some}
            self._worker().submit([Dead(some, self._rng.random() < 0.3)])

    def _read(self) -> None:
        self._worker().read(self._rng.choice([1, 5, 30]))

    def _deliver(self) -> None:
        self._rng.choice([*self._workers, *self._late]).deliver()

    def _kill(self) -> None:
        self._world.happened["kill"] += 1
        at = self._rng.randrange(len(self._workers))
        self._late.append(self._workers[at])
        self._workers[at] = self._new_worker()

    def _seek(self) -> None:
        self._world.happened["seek"] += 1
        worker, ends = self._worker(), tuple(self._world.ends)
        how = self._rng.choice(["back", "some", "end"])
        if how == "end":  # items may be put, leased and acked before the record is there
            worker.submit_slowly([Seek(ends, ends=ends)])
            return
        to = [self._rng.randint(0, end) if end else 0 for end in ends]
        is_named = [how == "back" or self._rng.random() < 0.5 for _ in ends]
        worker.submit_slowly(
            [Seek(tuple(n if named else None for n, named in zip(to, is_named, strict=True)), ends=ends)]
        )

    def _purge(self) -> None:
        self._world.happened["purge"] += 1
        self._worker().submit_slowly([Seek(tuple(self._world.ends), drop=True)])

    def _configure(self) -> None:
        changed = QueueSettings(
            partitions=self._world.partitions,
            max_attempts=self._rng.choice([0, 1, 3]),
            repeat_ms=self._rng.choice([0, 20_000]),
        )
        fields: Any = self._rng.choice([None, ("max_attempts",), ("repeat_ms",), ()])
        self._worker().submit([Configure(changed, fields)])

    def _heal(self) -> None:
        """Every late record arrives, half of the workers are made anew, and all agree."""
        for worker in [*self._workers, *self._late]:
            while worker.late:
                worker.deliver()
        self._workers = [one if self._rng.random() < 0.5 else self._new_worker() for one in self._workers]
        self._workers.append(self._new_worker())
        self._read_all()
        if len({worker.state_bytes() for worker in self._workers}) > 1:
            raise AssertionError("workers at the end of the log have different states")

    def _read_all(self) -> None:
        """All workers get to the end of the log, where what they read makes some write more."""
        while any(worker.late or worker.is_behind for worker in self._workers):
            for worker in self._workers:
                while worker.late:
                    worker.deliver()
                worker.read_all()

    def _drain(self) -> None:
        """Clients without faults take what is left, until nothing is."""
        reference = self._world.reference
        for _ in range(MOST_DRAINING):
            if not reference.held and reference.frontier == self._world.ends:
                break
            self._receipts.clear()
            self._world.now_ms = max(self._world.now_ms, reference.now) + 700_000
            worker = self._workers[-1]
            self._world.append(worker.name.encode(), -1, [Lease(100, 1_000, tuple(self._world.ends))])
            worker.read_all()
            if self._receipts:
                worker.submit([Ack(tuple(self._receipts))])
            self._read_all()
        self._read_all()

    def _judge(self) -> None:
        """Nothing is lost: each item is acked, buried with a copy, a repeat, or an operator skipped it."""
        world = self._world
        if world.reference.held or world.reference.frontier != world.ends:
            raise AssertionError("the queue is not empty after clients have taken all they can")
        for partition, ids in enumerate(world.items):
            for offset in range(len(ids)):
                self._judge_item((partition, offset))

    def _judge_item(self, place: Place) -> None:
        why = self._world.reference.why.get(place)
        if why is None or (why == "dead" and place not in self._world.letters):
            raise AssertionError(f"{place} is lost: {why}")
        self._world.happened[why] += 1
