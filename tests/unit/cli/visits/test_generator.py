"""The generated log and its truth, compared with independent ways to find sessions."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from itertools import accumulate, pairwise
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from cli.visits.command import generate_command
from cli.visits.generator import DISORDER_MS, MAX_LENGTH, TrueSession, VisitLine, Visits, generate
from shared.model.group import GroupSettings
from shared.model.routing import initial_table
from tests.reference import Rec, fold_eagerly


def test_the_command_writes_the_log_and_the_truth(tmp_path: Path) -> None:
    """One JSON object per line, as the generator returns them."""
    out, truth = tmp_path / "log", tmp_path / "truth"
    options = f"--visitors 5 --seed 2 --out {out} --truth {truth}"

    result = CliRunner().invoke(generate_command, options.split())

    assert result.exit_code == 0, result.output
    found = Visits(
        [msgspec.json.decode(line, type=VisitLine) for line in out.read_bytes().splitlines()],
        [msgspec.json.decode(line, type=TrueSession) for line in truth.read_bytes().splitlines()],
    )
    assert found == generate(5, 2)


@pytest.mark.parametrize(("seed", "streams"), [(1, 1), (1, 24), (7, 5)])
def test_the_truth_follows_from_the_rules_of_sessions(seed: int, streams: int) -> None:
    """Folding the log stream by stream, closed by a marker, gives the truth."""
    visits = generate(60 if streams == 1 else 150, seed)
    table = initial_table(streams)
    logs: dict[int, list[Rec]] = defaultdict(list)
    for number, line in enumerate(visits.lines, 1):
        value = json.dumps({"key": line.key, "time": line.time, "end": line.end, "line": number}).encode()
        log = logs[table.stream_for(line.key.encode())]
        log.append(Rec(len(log), 1_800_000_000_000, line.key.encode(), value))

    found = []
    for log in logs.values():
        marker = b'{"time":%d}' % max(line.time for line in visits.lines)
        log.append(Rec(len(log), 1_800_000_000_000, None, marker))
        closed, still_open = fold_eagerly(log, GroupSettings())
        assert still_open == []
        found += [
            (s.key, min(s.times), max(s.times), s.reason, sorted(json.loads(v)["line"] for v in s.values))
            for s in closed
        ]

    truth = [(s.key, s.first_time, s.last_time, s.reason, s.lines) for s in visits.truth]
    assert sorted(found) == sorted(truth)
    assert all(session.fragments == len(session.lines) for session in visits.truth)


def test_the_log_is_the_same_on_every_machine() -> None:
    """Golden digests: a changed log changes the demo's counts."""
    visits = generate(800, 1)

    assert (len(visits.lines), len(visits.truth)) == (20_681, 1_779)
    assert digest(visits) == "9def682a55e9c45c"
    assert digest(generate(800, 2)) != digest(visits)


def test_the_log_contains_difficult_sessions() -> None:
    """Ends, silence, quick revisits after an end, long tails, and lines that are slightly out of order."""
    visits = generate(800, 1)
    reasons = [session.reason for session in visits.truth]
    lengths = sorted(session.fragments for session in visits.truth)
    times = [line.time for line in visits.lines]
    late = [highest - time for time, highest in zip(times, accumulate(times, max), strict=True)]
    by_key = sorted(visits.truth, key=lambda session: (session.key, session.first_time))
    revisits = [b.first_time - a.last_time for a, b in pairwise(by_key) if a.key == b.key]

    assert reasons.count("end") > 300
    assert reasons.count("gap") > 300
    assert min(revisits) < 5 * 60_000
    assert max(late) <= DISORDER_MS
    assert sum(one > 0 for one in late) > 1000
    assert lengths[len(lengths) // 2] <= 5
    assert MAX_LENGTH / 2 < lengths[-1] <= MAX_LENGTH
    assert len({line.path for line in visits.lines}) > 200
    assert any(not line.key.isascii() for line in visits.lines)


def digest(visits: Visits) -> str:
    return hashlib.sha256(repr((visits.lines, visits.truth)).encode()).hexdigest()[:16]
