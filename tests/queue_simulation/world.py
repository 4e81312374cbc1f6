"""The world of one run: the broker's log and clock, the items, and what the reference says of each record."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from services.queue.core.commands import AnyCommand, SnapshotPart, decode_record, encode_record
from services.queue.core.fold import Answer, EnterAnswer, LeaseAnswer, ReceiptsAnswer
from services.queue.core.queue_state import QueueState
from services.queue.core.replica import LogRecord
from tests.queue_simulation.reference import Place, Reference

COMPARED_EVERY = 7
COUNTED = {
    "leased": "leased",
    "acked": "acked",
    "expired": "expired",
    "released": "released",
    "repeats": "repeat",
    "dead": "dead",
    "commands": "commands",
    "bare": "bare",
}
"""Fields of the fold's counts, which the metrics report, and the reference's words for them."""
INCARNATION = b"present"
GAP = "gap"
"""In place of an id: there is no record at this offset, as after a transaction."""


class Wrong(AssertionError):
    """A promise was broken."""


@dataclass(slots=True)
class World:
    """What outlives every worker."""

    rng: random.Random
    partitions: int
    now_ms: int = 1_000_000
    records: list[LogRecord] = field(default_factory=list)
    log_start: int = 0
    items: list[list[str]] = field(default_factory=list)
    """Of each partition, the id of every item; "" for none."""
    letters: set[Place] = field(default_factory=set)
    """Items of which a dead letter is stored."""
    reference: Reference = field(default_factory=Reference)
    answers: list[list[Any]] = field(default_factory=list)
    """What the reference answers to each record."""
    states: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """The reference's state after every seventh record."""
    happened: Counter[str] = field(default_factory=Counter)
    trace: list[tuple[int, int, list[AnyCommand], list[Any]]] = field(default_factory=list)
    """Time, offset, commands and answers of each record but snapshots."""

    def __post_init__(self) -> None:
        self.items = [[] for _ in range(self.partitions)]

    @property
    def log_end(self) -> int:
        """The next offset to be written."""
        return len(self.records)

    @property
    def ends(self) -> list[int]:
        """Where the items end."""
        return [len(one) for one in self.items]

    def tick(self) -> None:
        """The broker's clock goes on; sometimes it jumps, also back."""
        roll = self.rng.random()
        if roll < 0.02:
            self.now_ms -= self.rng.randrange(60_000)
            self.happened["clock jumps back"] += 1
        elif roll < 0.08:
            self.now_ms += self.rng.randrange(120_000)
            self.happened["clock jumps"] += 1
        else:
            self.now_ms += self.rng.randrange(2_000)

    def append(
        self, writer: bytes, number: int, commands: list[AnyCommand], incarnation: bytes = INCARNATION
    ) -> None:
        """The broker stores a record."""
        offset, value = self.log_end, encode_record(writer, number, commands, incarnation)
        self.records.append(LogRecord(offset, self.now_ms, value))
        read = decode_record(value)
        self.answers.append(self.reference.apply(offset, self.now_ms, read))
        if offset % COMPARED_EVERY == 0:
            self.states[offset] = reference_state(self.reference)
        if not isinstance(commands[0], SnapshotPart):
            self.trace.append((self.now_ms, offset, commands, self.answers[-1]))

    def trim(self, below: int) -> None:
        """The broker deletes records."""
        if below > self.log_end:
            raise Wrong(f"the log ends at {self.log_end}, and is to be trimmed to {below}")
        if below > self.log_start:
            self.log_start = below

    def compare(self, offset: int, answers: list[Answer]) -> None:
        """The real fold's answers to a record must be the reference's."""
        for answer, expected in zip(answers, self.answers[offset], strict=True):
            given = _plain(answer, expected)
            if given != expected:
                raise Wrong(f"record {offset}: {given} instead of {expected}")

    def compare_state(self, offset: int, state: QueueState) -> None:
        """The real fold's state after a record must be the reference's."""
        given = real_state(state)
        is_last = offset == self.log_end - 1
        expected = reference_state(self.reference) if is_last else self.states[offset]
        if given != expected:
            raise Wrong(f"after record {offset}: {given} instead of {expected}")


def real_state(state: QueueState) -> tuple[Any, ...]:
    """All that matters of a state of the real fold."""
    return (
        state.now_ms,
        tuple(state.frontier),
        sorted(
            (one.place, one.first_lease, one.lease, one.until_ms, one.attempts, one.id) for one in state.open
        ),
        state.settings,
        {name: getattr(state.counts, field) for field, name in COUNTED.items()},
        {one.id: one.known_until_ms for one in state.ids.acked if state.now_ms <= one.known_until_ms},
    )


def reference_state(it: Reference) -> tuple[Any, ...]:
    """The same of the reference."""
    held = {one.id for one in it.held.values()}
    return (
        it.now,
        tuple(it.frontier),
        sorted(
            (place, one.first, one.lease, one.until, one.attempts, one.id) for place, one in it.held.items()
        ),
        it.settings,
        {name: it.tally[name] for name in COUNTED.values()},
        {id_: until for id_, (_, until) in it.left.items() if it.now <= until and id_ not in held},
    )


def _plain(answer: Answer, expected: Any) -> Any:
    match answer:
        case LeaseAnswer():
            got = [((one.receipt.partition, one.receipt.offset), one.attempt) for one in answer.leased]
            return got, [(one.receipt.partition, one.receipt.offset) for one in answer.to_bury]
        case EnterAnswer():
            return answer.is_kept
        case ReceiptsAnswer():
            return [index not in answer.stale for index in range(len(expected or ()))]
    return None
