"""Small faults that the simulation of queues must find: each a text of the code, and what takes its place."""

from __future__ import annotations

from functools import partial

from tests.simulation.planting import PlantedFault

_Fault = partial(PlantedFault, simulation="tests.queue_simulation")
FOLD = "services/queue/core/fold.py"
REPLICA = "services/queue/core/replica.py"
SNAPSHOT = "services/queue/core/snapshot.py"

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
        text="if offset > through:",
        instead="if offset >= self.next_offset:",
    ),
    _Fault(
        name="a snapshot that leaves a gap",
        file=REPLICA,
        text="and command.through + 1 >= self._log_start",
        instead="",
    ),
    _Fault(
        name="trimming past the snapshot",
        file=SNAPSHOT,
        text="below=through + 1",
        instead="below=through + 3",
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
)
