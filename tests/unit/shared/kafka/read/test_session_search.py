"""Where to begin to read the sessions of a stream that closed late enough."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from shared.kafka.read.session_search import ClosedAt, find_since
from tests.effort import effort

LEAST = 4
Row = tuple[int, ClosedAt]
"""A delivered session: its number, and when it closed."""


@dataclass
class Topic:
    """What a stream has delivered, in order; None where another stream's session lies."""

    rows: Sequence[Row | None]

    async def probe(self, first: int, end: int) -> Row | None:
        """Offset and time of the first session between the offsets."""
        return next(((n, row[1]) for n in range(first, end) if (row := self.rows[n]) is not None), None)


def random_topic(rng: random.Random) -> Topic:
    """An owner delivers again what the one before had not committed, in any order: when it notices silence
    differs."""
    rows: list[Row | None] = []
    committed = number = at = log = 0
    for _ in range(rng.randrange(1, 5)):
        pending = list(range(committed, number))
        rng.shuffle(pending)
        for _ in range(rng.randrange(40)):
            if rng.random() < 0.4:
                rows.append(None)
                continue
            if rng.random() < 0.05 and not pending:
                log, at = log + 1, rng.randrange(at + 1)
            at += rng.randrange(3)
            found = pending.pop() if pending else number
            number = max(number, found + 1)
            rows.append((found, ClosedAt(log, at)))
        if not pending:
            committed = rng.randrange(committed, number + 1)
    return Topic(rows)


async def test_nothing_that_closed_late_enough_is_left_below() -> None:
    """Whatever streams share the partition, and however often crashes made owners deliver again."""
    skipped = 0
    for seed in range(effort(2_000)):
        rng = random.Random(seed)
        topic = random_topic(rng)
        since = ClosedAt(rng.randrange(2), rng.randrange(40))

        begin = await find_since(topic.probe, 0, len(topic.rows), since, LEAST)

        last = {row[0]: (n, row[1]) for n, row in enumerate(topic.rows) if row is not None}
        assert [n for n, at in last.values() if at >= since and n < begin] == [], seed
        skipped += begin
    assert skipped


async def test_a_long_topic_is_not_read_from_its_start() -> None:
    """A search in a million sessions ends close to the first one that is wanted, after a few probes."""
    probed: list[int] = []

    async def probe(first: int, end: int) -> Row | None:
        probed.append(first)
        return first, ClosedAt(0, first)

    begin = await find_since(probe, 0, 1_000_000, ClosedAt(0, 900_000))

    assert 899_000 <= begin <= 900_000
    assert len(probed) <= 20
