"""`/metrics` on any worker reports the totals of all workers: each writes its numbers to a file.

A worker writes its file every second, and reads the other files when it is asked; so the others' numbers are
up to a second old. A restarted worker continues from the counters in its predecessor's file, so that totals
never fall. A producer without workers does not use this; it has only its own registry.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily

from services.producer.http.status import ProducerStatus, status_of

WRITE_S = 1.0
FRESH_MS = 5_000
"""An older file belongs to a dead worker: its counters count, its gauges do not."""
GAUGE = "gauge"


class Family(msgspec.Struct, frozen=True, array_like=True):
    """A metric with its samples: name, labels, value."""

    name: str
    documentation: str
    type: str
    samples: list[tuple[str, dict[str, str], float]]


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The metrics of one worker at one time; the content of its file."""

    at_ms: int
    families: list[Family]


logger = logging.getLogger(__name__)
_decode_snapshot = msgspec.json.Decoder(Snapshot).decode


class WorkerMetrics:
    """The metrics of worker `number` and of the other workers, whose files are in the same `folder`.

    `collect` returns the worker's own metrics; `registry` serves the totals.
    """

    def __init__(
        self,
        folder: Path,
        number: int,
        collect: Callable[[], Iterable[Metric]],
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._number = number
        self._file = folder / f"{number}.json"
        self._collect = collect
        self._now_ms = now_ms
        predecessor = _read(self._file)
        # gauges describe a living process, so only counters are inherited
        self._inherited = [] if predecessor is None else _without_gauges(predecessor.families)
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def __repr__(self) -> str:
        return f"<WorkerMetrics in {self._file}>"

    async def run(self) -> None:
        """Writes the worker's own file every second until cancelled; a failure is logged once."""
        was_written = True
        while True:
            try:
                self.write()
                was_written = True
            except OSError as error:
                if was_written:
                    logger.warning("worker metrics not written", extra={"why": str(error)})
                was_written = False
            await asyncio.sleep(WRITE_S)

    def write(self) -> None:
        """Replaces the worker's own file atomically."""
        new = self._file.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(Snapshot(at_ms=self._now_ms(), families=self._own())))
        os.replace(new, self._file)

    def collect(self) -> Iterator[Metric]:
        """The totals of all workers, for the registry."""
        now_ms, workers, families = self._now_ms(), 0, list[Family]()
        for snapshot in self._snapshots().values():
            # counters of a dead worker stay in the totals until its successor inherits them
            is_fresh = now_ms - snapshot.at_ms <= FRESH_MS
            families += snapshot.families if is_fresh else _without_gauges(snapshot.families)
            workers += is_fresh
        yield from summed(families)
        yield GaugeMetricFamily("baton_workers", "Workers of this producer that are alive", value=workers)

    def statuses(self, producer: str) -> list[ProducerStatus]:
        """What each worker has counted; `producer` is the id of them all."""
        return [
            status_of(f"{producer}.{number}", snapshot.at_ms, summed(snapshot.families))
            for number, snapshot in sorted(self._snapshots().items())
        ]

    def _snapshots(self) -> dict[int, Snapshot]:
        """The metrics of every worker by number: its own as of now, the others' as of their files."""
        own = Snapshot(at_ms=self._now_ms(), families=self._own())
        files = [file for file in self._file.parent.glob("*.json") if file != self._file]
        read = {int(file.stem): _read(file) for file in files}
        return {self._number: own} | {number: one for number, one in read.items() if one is not None}

    def _own(self) -> list[Family]:
        return [*self._inherited, *(_family_of(metric) for metric in self._collect())]


def summed(families: Iterable[Family]) -> list[Metric]:
    """One metric for each name; samples with the same name and labels are added up.

    >>> one = Family("n", "N", "counter", [("n_total", {"of": "a"}, 1.0)])
    >>> two = Family("n", "N", "counter", [("n_total", {"of": "a"}, 2.0), ("n_total", {"of": "b"}, 5.0)])
    >>> [sample.value for sample in summed([one, two])[0].samples]
    [3.0, 5.0]
    """
    metrics: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for family in families:
        metrics.setdefault(family.name, Metric(family.name, family.documentation, family.type))
        sums = values.setdefault(family.name, {})
        for name, labels, value in family.samples:
            at = (name, tuple(labels.items()))
            sums[at] = sums.get(at, 0.0) + value
    for name, metric in metrics.items():
        for (sample, labels_of), value in values[name].items():
            metric.add_sample(sample, dict(labels_of), value)
    return list(metrics.values())


def _family_of(metric: Metric) -> Family:
    samples = [(sample.name, dict(sample.labels), float(sample.value)) for sample in metric.samples]
    return Family(metric.name, metric.documentation, metric.type, samples)


def _without_gauges(families: Iterable[Family]) -> list[Family]:
    return [family for family in families if family.type != GAUGE]


def _read(file: Path) -> Snapshot | None:
    try:
        return _decode_snapshot(file.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
