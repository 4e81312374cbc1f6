"""The grid as a list of points: curves for writing, reading and both, 24 and 288 topics, 1 and 3 brokers.

A curve changes one value and keeps the others at `USUAL_BATCH_KB` and one client. Pure; `bench/grid.py` runs
the points in this order, which needs few new logs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Work = Literal["write", "read", "both"]
Side = Literal["baton", "aiokafka"]

SIDES: Final[tuple[Side, Side]] = ("baton", "aiokafka")
WORKS: Final[tuple[Work, ...]] = ("write", "read", "both")
BROKERS: Final = (1, 3)
TOPICS: Final = (24, 288)
USUAL_BATCH_KB: Final = 64
STEADY_RATE: Final = 4_000
"""Fragments per second on the curve of flush intervals: few, so that the interval decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """`x`: what changes; `values`: its points; `figures`: those of a result that depend on it."""

    name: str
    x: str
    values: tuple[int, ...]
    figures: tuple[str, ...]
    shows: str
    """For the page: what to look for."""


CURVES: Final = (
    Curve(
        name="flush",
        x="flush interval, ms",
        values=(1, 5, 20, 100),
        figures=("cpu_us", "latency_ms"),
        shows=f"**Flush interval.** At a steady {STEADY_RATE:,} fragments/s a writer hands over what has "
        "gathered for so long, and in *reading* a reader takes what has come (plain aiokafka then "
        "writes every 5 ms for both sides, and is not counted). Longer intervals mean fewer and "
        "larger batches, so a fragment costs less CPU and waits half the interval longer; *both at "
        "once* flushes at the interval and reads at once. Baton's fetcher rests for 10 ms after a "
        "small answer, in whatever interval its records are taken: with short ones it saves a third "
        "to a half of the reader's CPU and delivers 3 to 4 ms later, with long ones it costs more than "
        "plain aiokafka, which fetches only while somebody takes, and delivers far earlier.",
    ),
    Curve(
        name="batch",
        x="largest batch, kB",
        values=(4, 16, 64, 256),
        figures=("rate", "cpu_us"),
        shows="**Batch size.** The bound of a batch, as fast as it goes, also of the batches in the log "
        "that is read. Small batches pay a header, a checksum and an entry in a request for few "
        "fragments; when 288 topics are written, a bound above 22 kB changes nothing, because the "
        "6,400 fragments on their way leave 22 to each topic. With three replicas of 288 topics Baton "
        "writes less than plain aiokafka, 0.82 to 0.95 of its rate from 16 kB on, at less CPU: it "
        "gathers what all topics of a broker have and has one such request on its way, and each "
        "hundred fragments wait for all three brokers. (The front door has two on their way.)",
    ),
    Curve(
        name="clients",
        x="producers, consumers, or each",
        values=(1, 2, 3, 4),
        figures=("rate", "cpu_us"),
        shows="**Producers and consumers.** One to four of each kind, as processes of their own that share "
        "the topics when they read. Two cores hold one client and a broker, so more clients share "
        "them: the rate shows what is left for the broker, and the CPU of a fragment what the client "
        "saves.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Point:
    """One place of the grid; both sides are measured there in turns."""

    brokers: int
    topics: int
    curve: str
    work: Work
    value: int

    @property
    def clients(self) -> int:
        """How many producers, and how many consumers."""
        return self.value if self.curve == "clients" else 1

    @property
    def batch_bytes(self) -> int:
        """The largest batch, also in the log that is read."""
        return (self.value if self.curve == "batch" else USUAL_BATCH_KB) * 1_024

    @property
    def interval_ms(self) -> int:
        """How long fragments gather before they are handed over or taken; 0: as fast as it goes."""
        return self.value if self.curve == "flush" else 0

    @property
    def writers(self) -> int:
        """How many processes write."""
        return 0 if self.work == "read" and not self.interval_ms else self.clients

    @property
    def readers(self) -> int:
        """How many processes read."""
        return 0 if self.work == "write" else self.clients

    @property
    def reads_log(self) -> bool:
        """Whether it reads a log that was written before, and nothing is written meanwhile."""
        return self.work == "read" and not self.interval_ms


def plan(brokers: Sequence[int] = BROKERS, topics: Sequence[int] = TOPICS, *, quick: bool) -> list[Point]:
    """All points in the order of measuring; `quick`: only the ends of each curve."""
    return [
        Point(brokers=b, topics=t, curve=curve.name, work=work, value=value)
        for b, t, curve in itertools.product(brokers, topics, CURVES)
        for work in WORKS
        for value in (curve.values[:: len(curve.values) - 1] if quick else curve.values)
    ]


def order_of(round_number: int) -> tuple[Side, ...]:
    """The sides take turns at going first."""
    return SIDES if round_number % 2 == 0 else SIDES[::-1]
