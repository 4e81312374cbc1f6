"""What several workers have counted, added up from their files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import prometheus_client
import pytest
from services.producer.process import worker_metrics as subject
from services.producer.process.worker_metrics import FRESH_MS, WorkerMetrics

from services.producer.http.metrics import ProducerMetrics


class Clock:
    """Wall time that tests move."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


class Station:
    """One worker: its metrics, and its tallies in the common folder."""

    def __init__(self, folder: Path, number: int, clock: Clock, inflight: int = 0) -> None:
        self.metrics = ProducerMetrics()
        self.metrics.inflight_bytes = lambda: inflight
        self.tallies = WorkerMetrics(folder, number, self.metrics.collect, clock)

    def told(self) -> dict[str, float]:
        """What its /metrics says: sample with labels → value."""
        text = prometheus_client.generate_latest(self.tallies.registry).decode()
        return dict(self._lines(text))

    def _lines(self, text: str) -> Iterator[tuple[str, float]]:
        for line in text.splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                yield name, float(value)


def test_any_worker_tells_the_sum_of_all(tmp_path: Path) -> None:
    """Counters with and without labels, gauges and histograms, whoever is asked."""
    clock = Clock()
    one, two = Station(tmp_path, 0, clock, inflight=10), Station(tmp_path, 1, clock, inflight=5)
    one.metrics.stored, two.metrics.stored = 3, 4
    one.metrics.requests.update({200: 2})
    two.metrics.requests.update({200: 1, 429: 7})
    one.metrics.acknowledged(0.003)
    two.metrics.acknowledged(0.0001)
    two.metrics.acknowledged(99.0)

    one.tallies.write()
    two.tallies.write()

    assert one.told() == two.told()
    told = one.told()
    assert told["baton_fragments_stored_total"] == 7
    assert told['baton_requests_total{status="200"}'] == 3
    assert told['baton_requests_total{status="429"}'] == 7
    assert told["baton_inflight_bytes"] == 15
    assert told['baton_acknowledgement_seconds_bucket{le="0.001"}'] == 1
    assert told['baton_acknowledgement_seconds_bucket{le="0.005"}'] == 2
    assert told['baton_acknowledgement_seconds_bucket{le="+Inf"}'] == 3
    assert told["baton_acknowledgement_seconds_count"] == 3
    assert told["baton_workers"] == 2


def test_a_workers_own_numbers_are_those_of_now(tmp_path: Path) -> None:
    """Only the others' come from files; its own file is not counted beside itself."""
    clock = Clock()
    one = Station(tmp_path, 0, clock)
    one.metrics.stored = 1
    one.tallies.write()

    one.metrics.stored = 2

    assert one.told()["baton_fragments_stored_total"] == 2
    assert one.told()["baton_workers"] == 1


def test_a_worker_that_is_started_again_goes_on_counting(tmp_path: Path) -> None:
    """From what the one before it had written: sums must not fall, or every rate shows a jump."""
    clock = Clock()
    first, other = Station(tmp_path, 0, clock, inflight=9), Station(tmp_path, 1, clock)
    first.metrics.stored = 10
    first.tallies.write()

    again = Station(tmp_path, 0, clock, inflight=1)
    again.metrics.stored = 1
    again.tallies.write()
    third = Station(tmp_path, 0, clock)

    assert again.told()["baton_fragments_stored_total"] == 11
    assert other.told()["baton_fragments_stored_total"] == 11
    assert other.told()["baton_inflight_bytes"] == 1
    assert third.told()["baton_fragments_stored_total"] == 11


def test_the_gauges_of_a_dead_worker_do_not_count(tmp_path: Path) -> None:
    """What it had stored stays stored; what it had in flight is nobody's."""
    clock = Clock()
    dead, alive = Station(tmp_path, 0, clock, inflight=9), Station(tmp_path, 1, clock, inflight=1)
    dead.metrics.stored = 10
    dead.tallies.write()
    before = alive.told()

    clock.now_ms += FRESH_MS + 1

    assert (before["baton_inflight_bytes"], before["baton_workers"]) == (10, 2)
    after = alive.told()
    assert (after["baton_inflight_bytes"], after["baton_workers"]) == (1, 1)
    assert after["baton_fragments_stored_total"] == 10


async def test_a_folder_that_vanishes_does_not_end_a_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells so once, answers with its own numbers, and writes again when it can."""
    monkeypatch.setattr(subject, "WRITE_S", 0.001)
    folder = tmp_path / "gone"
    station = Station(folder, 0, Clock())
    station.metrics.stored = 3
    running = asyncio.create_task(station.tallies.run())

    async with asyncio.timeout(10):
        while len(caplog.records) < 1:  # noqa: ASYNC110  a log cannot be awaited
            await asyncio.sleep(0.001)
        alone = station.told()
        folder.mkdir()
        while not (folder / "0.json").exists():  # noqa: ASYNC110  a file cannot be awaited
            await asyncio.sleep(0.001)
    running.cancel()
    await asyncio.wait({running})

    assert alone["baton_fragments_stored_total"] == 3
    assert caplog.messages == ["tallies not written"]


def test_files_that_are_no_tallies_are_left_out(tmp_path: Path) -> None:
    """What cannot be read counts nothing, and breaks nothing."""
    (tmp_path / "0.json").write_bytes(b"[1,")
    (tmp_path / "7.json").write_bytes(b"{}")
    station = Station(tmp_path, 0, Clock())
    station.metrics.stored = 1

    assert station.told()["baton_fragments_stored_total"] == 1
