"""The metrics of several workers, added up from their files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import prometheus_client
import pytest

from services.producer.http.metrics import ProducerMetrics
from services.producer.workers import metrics as subject
from services.producer.workers.metrics import FRESH_MS, WorkerMetrics
from tests.waiting import DEADLINE_S


class WorkerTwin:
    """One worker: what it counts itself, and the totals that it reports."""

    def __init__(self, folder: Path, number: int, inflight: int = 0) -> None:
        self.now_ms = 1_000_000
        self.metrics = ProducerMetrics()
        self.metrics.inflight_bytes = lambda: inflight
        self.totals = WorkerMetrics(folder, number, self.metrics.collect, lambda: self.now_ms)

    def report(self) -> dict[str, float]:
        """Its /metrics: sample with labels → value."""
        text = prometheus_client.generate_latest(self.totals.registry).decode()
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in lines}


def test_every_worker_reports_the_totals_of_all(tmp_path: Path) -> None:
    """Counters with and without labels, gauges, and histograms."""
    one, two = WorkerTwin(tmp_path, 0, inflight=10), WorkerTwin(tmp_path, 1, inflight=5)
    one.metrics.stored, two.metrics.stored = 3, 4
    one.metrics.requests.update({200: 2})
    two.metrics.requests.update({200: 1, 429: 7})
    one.metrics.acknowledged(0.003)
    two.metrics.acknowledged(0.0001)
    two.metrics.acknowledged(99.0)

    one.totals.write()
    two.totals.write()

    assert one.report() == two.report()
    report = one.report()
    assert report["baton_fragments_stored_total"] == 7
    assert report['baton_requests_total{status="200"}'] == 3
    assert report['baton_requests_total{status="429"}'] == 7
    assert report["baton_inflight_bytes"] == 15
    assert report['baton_acknowledgement_seconds_bucket{le="0.001"}'] == 1
    assert report['baton_acknowledgement_seconds_bucket{le="0.005"}'] == 2
    assert report['baton_acknowledgement_seconds_bucket{le="+Inf"}'] == 3
    assert report["baton_acknowledgement_seconds_count"] == 3
    assert report["baton_workers"] == 2


def test_a_workers_own_numbers_are_current(tmp_path: Path) -> None:
    """Only the others' come from files; its own file does not count in addition."""
    one = WorkerTwin(tmp_path, 0)
    one.metrics.stored = 1
    one.totals.write()

    one.metrics.stored = 2

    assert one.report()["baton_fragments_stored_total"] == 2
    assert one.report()["baton_workers"] == 1


def test_a_restarted_worker_continues_counting(tmp_path: Path) -> None:
    """It starts from its predecessor's file: totals must not fall, or every rate would jump."""
    first, other = WorkerTwin(tmp_path, 0, inflight=9), WorkerTwin(tmp_path, 1)
    first.metrics.stored = 10
    first.totals.write()

    again = WorkerTwin(tmp_path, 0, inflight=1)
    again.metrics.stored = 1
    again.totals.write()
    third = WorkerTwin(tmp_path, 0)

    assert again.report()["baton_fragments_stored_total"] == 11
    assert other.report()["baton_fragments_stored_total"] == 11
    assert other.report()["baton_inflight_bytes"] == 1
    assert third.report()["baton_fragments_stored_total"] == 11


def test_the_gauges_of_a_dead_worker_do_not_count(tmp_path: Path) -> None:
    """What it stored stays stored; what it had in flight is gone."""
    dead, alive = WorkerTwin(tmp_path, 0, inflight=9), WorkerTwin(tmp_path, 1, inflight=1)
    dead.metrics.stored = 10
    dead.totals.write()
    before = alive.report()

    alive.now_ms += FRESH_MS + 1

    assert (before["baton_inflight_bytes"], before["baton_workers"]) == (10, 2)
    after = alive.report()
    assert (after["baton_inflight_bytes"], after["baton_workers"]) == (1, 1)
    assert after["baton_fragments_stored_total"] == 10


async def test_a_missing_folder_does_not_end_a_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It logs this once, reports its own numbers, and writes again when it can."""
    monkeypatch.setattr(subject, "WRITE_S", 0.001)
    folder = tmp_path / "gone"
    worker = WorkerTwin(folder, 0)
    worker.metrics.stored = 3
    running = asyncio.create_task(worker.totals.run())

    async with asyncio.timeout(DEADLINE_S):
        while len(caplog.records) < 1:  # noqa: ASYNC110  a log cannot be awaited
            await asyncio.sleep(0.001)
        alone = worker.report()
        folder.mkdir()
        while not (folder / "0.json").exists():  # noqa: ASYNC110  a file cannot be awaited
            await asyncio.sleep(0.001)
    running.cancel()
    await asyncio.wait({running})

    assert alone["baton_fragments_stored_total"] == 3
    assert caplog.messages == ["worker metrics not written"]


def test_unreadable_files_are_ignored(tmp_path: Path) -> None:
    """They add nothing to the totals, and break nothing."""
    (tmp_path / "0.json").write_bytes(b"[1,")
    (tmp_path / "7.json").write_bytes(b"{}")
    worker = WorkerTwin(tmp_path, 0)
    worker.metrics.stored = 1

    assert worker.report()["baton_fragments_stored_total"] == 1


def test_any_worker_reports_what_each_worker_has_counted(tmp_path: Path) -> None:
    """Each by its own id, with the time of its numbers; a successor goes on from its predecessor's counts."""
    one, two = WorkerTwin(tmp_path, 0), WorkerTwin(tmp_path, 1)
    one.metrics.stored, two.metrics.stored, two.metrics.unstored = 3, 4, 1
    two.metrics.rejected.update({"time": 2})
    two.metrics.refused.update({"overloaded": 7})
    two.totals.write()
    one.now_ms += 700
    successor = WorkerTwin(tmp_path, 1)
    successor.metrics.stored = 5

    first, other = one.totals.statuses("p")
    (later,) = successor.totals.statuses("p")

    assert (first.id, first.at, first.accepted) == ("p.0", 1_000_700, 3)
    assert (other.id, other.at, other.accepted, other.unstored) == ("p.1", 1_000_000, 4, 1)
    assert (other.rejected, other.refused) == ({"time": 2}, {"overloaded": 7})
    assert (later.id, later.accepted, later.rejected) == ("p.1", 9, {"time": 2})
