"""Small faults that the simulation of queues must find: each a text of the code, and what takes its place."""

from __future__ import annotations

from functools import partial

from tests.simulation.planting import PlantedFault

_Fault = partial(PlantedFault, simulation="tests.queue_simulation.__main__")
_WorkersFault = partial(PlantedFault, simulation="tests.queue_simulation.service", seeds=200)
FOLD = "services/queue/core/fold.py"
REPLICA = "services/queue/core/replica.py"
SNAPSHOT = "services/queue/core/snapshot.py"
COMMANDS = "services/queue/core/commands.py"
WORKER = "services/queue/worker"

FAULTS = (
    _Fault(
        name="leases end by the workers' clocks",
        file="tests/queue_simulation/worker.py",
        text="LogRecord(record.offset, record.append_ms, record.value)",
        instead="LogRecord(record.offset, self.world.now_ms + self.skew_ms, record.value)",
    ),
    _Fault(
        name="a start behind the snapshot's record",
        file=REPLICA,
        text="if record.offset > through:",
        instead="if record.offset >= self.next_offset:",
    ),
    _Fault(
        name="a snapshot that leaves a gap",
        file=REPLICA,
        text="and command.through + 1 >= self._log_start",
        instead="",
    ),
    _Fault(
        name="trimming past the snapshot",
        file=REPLICA,
        text="below=max(0, self._stored_through)",
        instead="below=self.next_offset + 2",
    ),
    _Fault(
        name="trimming past the record that says whose log it is",
        file=REPLICA,
        text="below=max(0, self._stored_through)",
        instead="below=self._stored_through + 1",
    ),
    _Fault(
        name="records of a deleted queue count",
        file=FOLD,
        text="if record.incarnation != state.incarnation:",
        instead="if False:",
    ),
    _Fault(
        name="snapshots of a deleted queue are beginnings",
        file=REPLICA,
        text="if read.incarnation != self._before[0][1].incarnation:",
        instead="if False:",
    ),
    _Fault(
        name="snapshots of a deleted queue let the log go",
        file=REPLICA,
        text="if read.incarnation == self.state.incarnation:",
        instead="if True:",
    ),
    _Fault(
        name="a change of settings makes another queue of it",
        file=FOLD,
        text="new = msgspec.structs.replace(state.settings, **changed)",
        instead="new = msgspec.structs.replace(new, **changed)",
    ),
    _Fault(
        name="stale receipts are good",
        file=FOLD,
        text="item if item is not None and item.lease == receipt.lease else None",
        instead="item",
    ),
    _Fault(
        name="a seek keeps ids",
        file=FOLD,
        text="    state.ids.forget_items(lambda place: place in gone or is_forgotten(place))\n",
        instead="",
    ),
    _Fault(
        name="a dead letter keeps its id",
        file=FOLD,
        text="if item.id and is_dead:",
        instead="if False:",
    ),
    _Fault(
        name="time goes back with the broker's clock",
        file=FOLD,
        text="state.now_ms = max(state.now_ms, append_ms)",
        instead="state.now_ms = append_ms",
    ),
    _Fault(
        name="a snapshot forgets who gave back what",
        file=SNAPSHOT,
        text="        state.open.add(item)\n",
        instead="        item.is_released = False\n        state.open.add(item)\n",
    ),
    _Fault(
        name="a snapshot forgets held ids",
        file=SNAPSHOT,
        text="        if item.id:\n",
        instead="        if False:\n",
    ),
    _Fault(
        name="who skips to the end goes back",
        file=COMMANDS,
        text="return max(to, frontier) if is_skip else to",
        instead="return to",
    ),
    _Fault(
        name="a purge goes back",
        file=COMMANDS,
        text="is_skip = self.drop or (",
        instead="is_skip = (",
    ),
    _Fault(
        name="a setting takes the others with it",
        file=FOLD,
        text="fields = CHANGEABLE if command.fields is None else command.fields",
        instead="fields = CHANGEABLE",
    ),
    _Fault(
        name="a rejection shortens the lease",
        file=FOLD,
        text="max(item.until_ms, until_ms) if command.is_at_least else until_ms",
        instead="until_ms",
    ),
    _Fault(
        name="releases count as expired",
        file=FOLD,
        text="state.counts.expired += not item.is_released",
        instead="state.counts.expired += 1",
    ),
    _WorkersFault(
        name="workers: who skips to the end goes back",
        file=COMMANDS,
        text="return max(to, frontier) if is_skip else to",
        instead="return to",
        is_rare=True,
        seeds=5_000,
    ),
    _WorkersFault(
        name="a letter has the id of its place",
        file="services/queue/core/items.py",
        text="/{receipt.offset}/{death.life}",
        instead="/{receipt.offset}",
    ),
    _WorkersFault(
        name="all queues have one incarnation",
        file=f"{WORKER}/queues.py",
        text="incarnation=self._rng.randbytes(INCARNATION_BYTES)",
        instead='incarnation=b"always"',
    ),
    _WorkersFault(
        name="workers: records of a deleted queue count",
        file=FOLD,
        text="if record.incarnation != state.incarnation:",
        instead="if False:",
    ),
    _WorkersFault(
        name="redriven letters are done before they are stored",
        file=f"{WORKER}/leasing.py",
        text="if n not in unstored.indexes]",
        instead="]",
    ),
    _WorkersFault(
        name="a worker that stood still hands out what is over",
        file=f"{WORKER}/handing_out.py",
        text="    if item is None or item.lease != leased.receipt.lease:\n        return False\n"
        "    return now_ms < item.until_ms\n",
        instead="    return item is not None\n",
    ),
    _WorkersFault(
        name="repeats are handed out",
        file=f"{WORKER}/handing_out.py",
        text="        return False\n    return now_ms < item.until_ms\n",
        instead="        return item is None\n    return now_ms < item.until_ms\n",
    ),
    _WorkersFault(
        name="exhausted items are done without a letter",
        file=f"{WORKER}/burying.py",
        text="if not made:",
        instead="if True:",
    ),
    _WorkersFault(
        name="letters that are not stored pass for stored",
        file=f"{WORKER}/burying.py",
        text="buried = [receipt for receipt in some if receipt not in unsure]",
        instead="buried = some",
    ),
    _WorkersFault(
        name="commands of one record get each other's answers",
        file=f"{WORKER}/submissions.py",
        text="some = answers[at : at + len(commands)]",
        instead="some = answers[: len(commands)]",
    ),
    _WorkersFault(
        name="the log is trimmed with its snapshot",
        file=f"{WORKER}/engine.py",
        text="await self.log.trim(snapshot.below)",
        instead="await self.log.trim(self.next_offset)",
    ),
    _WorkersFault(
        name="polls that were served count for ever",
        file=f"{WORKER}/demand.py",
        text="self._served -= count",
        instead="pass",
    ),
)
