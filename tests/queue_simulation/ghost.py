"""A worker of a deleted queue of the same name: it has not noticed, and writes into the new log.

Its appends name the topic, so they arrive; what they say is true of the old queue alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.queue.core.commands import (
    Ack,
    AnyCommand,
    CommandRecord,
    Configure,
    Dead,
    Lease,
    QueueSettings,
    Receipt,
    Seek,
    Until,
)
from services.queue.core.fold import apply_record
from services.queue.core.queue_state import QueueState
from services.queue.core.snapshot import snapshot_of
from tests.queue_simulation.world import World

OTHER = b"deleted"


class Ghost:
    """The worker; its queue had one to three partitions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._settings = QueueSettings(
            partitions=world.rng.choice([1, 2, 3]), max_attempts=1, repeat_ms=300_000, incarnation=OTHER
        )

    def write(self, receipts: Sequence[Receipt]) -> None:
        """Writes something; `receipts` are good in the new queue, and look like its own."""
        world, rng = self._world, self._world.rng
        world.happened["record of a deleted queue"] += 1
        if rng.random() < 0.3:
            self._store_snapshot()
            return
        some = tuple(receipts[:3])
        ends = tuple(rng.randrange(200) for _ in range(self._settings.partitions))
        commands: list[AnyCommand] = [
            Lease(rng.choice([1, 100]), 600_000, ends, ends),
            Ack(some),
            Dead(some),
            Until(some, 600_000),
            Seek(ends, drop=rng.random() < 0.5),
            Configure(self._settings),
        ]
        world.append(b"ghost", 1, [rng.choice(commands)], OTHER)

    def _store_snapshot(self) -> None:
        """All parts, which is more than it could: it would not read the first one again."""
        world, state = self._world, QueueState()
        ends = tuple([90] * self._settings.partitions)
        apply_record(state, 0, 1, CommandRecord(b"g", 1, (Configure(self._settings),)))
        apply_record(state, 1, 1, CommandRecord(b"g", 2, (Lease(20, 600_000, ends),), OTHER))
        through = max(0, world.log_end + world.rng.randrange(-30, 30))
        for part in snapshot_of(state, through, below=0).parts:
            world.append(b"ghost", 1, [part], OTHER)
