"""One life of a worker with the real fold: it lags, loses answers, and dies; its clock is wrong.

What it does with an answer is what services/queue/worker does: it closes gaps, enters ids, buries what has
had all its attempts, hands out the rest, and stores snapshots. It is a stand-in, without tasks and timers, so
that a hundred thousand runs take minutes; service.py runs the real workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from services.queue.core.commands import Ack, AnyCommand, Dead, Enter, Receipt
from services.queue.core.fold import Answer, EnterAnswer, LeaseAnswer, Leased
from services.queue.core.replica import LogMoved, LogRecord, Replica
from services.queue.core.snapshot import Snapshot, encode_state
from tests.queue_simulation.world import COMPARED_EVERY, GAP, World

Handed = Callable[[Leased], None]


class Worker:
    """`hand_out` gets what a client would; `snapshot_every` as in `Replica`."""

    def __init__(self, world: World, name: str, hand_out: Handed, snapshot_every: int) -> None:
        self.world, self.name = world, name
        self._hand_out, self._every = hand_out, snapshot_every
        self._replica = Replica(world.log_start, snapshot_every)
        self._number = 0
        self._entering: dict[int, Sequence[Leased]] = {}
        self._parts: dict[int, Snapshot] = {}
        """Record of a snapshot's last part that is stored, and the snapshot."""
        self._ends = [0] * world.partitions
        self.skew_ms = world.rng.randrange(-90_000, 90_000)
        self.late: list[tuple[int, list[AnyCommand]]] = []
        """Records that are still on their way to the broker."""

    @property
    def ends(self) -> tuple[int, ...]:
        """How far it has read the items: anywhere up to their ends, and never back."""
        rng = self.world.rng
        self._ends = [rng.randint(have, end) for have, end in zip(self._ends, self.world.ends, strict=True)]
        return tuple(self._ends)

    def submit(self, commands: list[AnyCommand]) -> int:
        """Sends a record, which may arrive late, or never."""
        self._number += 1
        roll = self.world.rng.random()
        if roll < 0.05:
            self.world.happened["record lost"] += 1
        elif roll < 0.15:
            self.world.happened["record late"] += 1
            self.late.append((self._number, commands))
        else:
            self.world.append(self._writer, self._number, commands)
        return self._number

    def submit_slowly(self, commands: list[AnyCommand]) -> None:
        """Sends a record that others overtake: between the look at the ends and the record much happens."""
        self._number += 1
        self.late.append((self._number, commands))

    def deliver(self) -> None:
        """One late record arrives, perhaps after those that were sent after it."""
        if self.late:
            number, commands = self.late.pop(self.world.rng.randrange(len(self.late)))
            self.world.append(self._writer, number, commands)

    def read(self, most: int) -> None:
        """Reads some records of the log, and acts on the answers to its own."""
        for _ in range(most):
            at = self._replica.next_offset
            if at >= self.world.log_end:
                return
            try:
                self._feed(self.world.records[max(at, self.world.log_start)])
            except LogMoved:
                self.world.happened["log begins anew"] += 1
                self._replica = Replica(self.world.log_start, self._every)

    def read_all(self) -> None:
        """Reads to the end, and checks that the state is that of every other worker."""
        while self._replica.next_offset < self.world.log_end:
            self.read(100)
        if self.world.log_end:
            if self._replica.state is None:
                raise AssertionError("no beginning was found")
            self.world.compare_state(self.world.log_end - 1, self._replica.state)

    @property
    def is_behind(self) -> bool:
        """Whether it has not read the end of the log."""
        return self._replica.next_offset < self.world.log_end

    def state_bytes(self) -> bytes:
        """Its state, as a snapshot would hold it."""
        assert self._replica.state is not None
        return encode_state(self._replica.state)

    @property
    def _writer(self) -> bytes:
        return self.name.encode()

    def _feed(self, record: LogRecord) -> None:
        folded = self._replica.feed(LogRecord(record.offset, record.append_ms, record.value))
        if folded is None:
            return
        if record.offset % COMPARED_EVERY == 0:
            assert self._replica.state is not None
            self.world.compare_state(record.offset, self._replica.state)
        self.world.compare(record.offset, list(folded.answers))
        if folded.writer != self._writer:
            return
        if folded.is_snapshot_due:
            self._store(self._replica.snapshot())
        if (snapshot := self._parts.pop(folded.number, None)) is not None:
            self.world.happened["snapshot"] += 1
            self.world.trim(snapshot.below)
        for answer in folded.answers:
            self._act(folded.number, answer)

    def _store(self, snapshot: Snapshot) -> None:
        """Stores one part after the other; each is surely stored, or the whole is given up."""
        for part in snapshot.parts:
            if self.world.rng.random() < 0.1:
                self.world.happened["snapshot given up"] += 1
                return
            self._number += 1
            self.world.append(self._writer, self._number, [part])
        self._parts[self._number] = snapshot

    def _act(self, number: int, answer: Answer) -> None:
        if isinstance(answer, LeaseAnswer):
            if answer.to_bury:
                self._bury(answer.to_bury)
            self._take(answer.leased)
        elif isinstance(answer, EnterAnswer) and number in self._entering:
            leased = self._entering.pop(number)
            if answer.is_kept:
                self._hand_out(leased[0])

    def _take(self, leased: Sequence[Leased]) -> None:
        gaps: list[Receipt] = []
        for one in leased:
            id_ = self.world.items[one.receipt.partition][one.receipt.offset]
            if id_ == GAP:
                gaps.append(one.receipt)
            elif id_ and not one.is_entered:
                number = self.submit([Enter(one.receipt, id_)])
                self._entering[number] = [one]
            else:
                self._hand_out(one)
        if gaps:
            self.submit([Ack(tuple(gaps))])

    def _bury(self, exhausted: Sequence[Leased]) -> None:
        receipts = tuple(one.receipt for one in exhausted)
        self.world.letters |= {receipt[:2] for receipt in receipts}
        self.world.happened["buried"] += len(receipts)
        self.submit([Dead(receipts)])
