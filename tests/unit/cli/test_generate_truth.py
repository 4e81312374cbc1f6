"""The made-up log and its truth, held against ways to find sessions that the generator knows nothing of."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.visits.command import generate_command
from cli.visits.generator import DISORDER_MS, MAX_LENGTH, Visits, generate
from shared.model.group import GroupSettings
from shared.model.routing import initial_table
from tests.reference import Rec, fold_eagerly

GAP_MS = 30 * 60 * 1000


def rows_of(tmp_path: Path, visitors: int, seed: int) -> tuple[list[Any], list[Any]]:
    out, truth = tmp_path / "log", tmp_path / "truth"
    arguments = ["--visitors", str(visitors), "--seed", str(seed), "--out", str(out), "--truth", str(truth)]
    result = CliRunner().invoke(generate_command, arguments)
    assert result.exit_code == 0, result.output
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in (out, truth)]  # type: ignore[return-value]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_truth_is_what_gaps_and_ends_say(tmp_path: Path, seed: int) -> None:
    """Sorting a visitor's lines by time, and cutting after ends and at gaps, gives the same sessions."""
    log, truth = rows_of(tmp_path, 100, seed)
    of_key = defaultdict(list)
    for number, line in enumerate(log, 1):
        of_key[line["key"]].append((line["time"], number, line.get("end", False)))

    found = []
    for key, lines in of_key.items():
        session: list[tuple[int, int, bool]] = []
        for line in sorted(lines):
            if session and (session[-1][2] or line[0] - session[-1][0] > GAP_MS):
                found.append((key, session))
                session = []
            session.append(line)
        found.append((key, session))

    assert sorted(
        (s["key"], s["first_time"], s["last_time"], s["fragments"], s["reason"], s["lines"]) for s in truth
    ) == sorted(
        (key, s[0][0], s[-1][0], len(s), "end" if s[-1][2] else "gap", sorted(n for _, n, _ in s))
        for key, s in found
    )


@pytest.mark.parametrize(("seed", "streams"), [(1, 1), (1, 24), (7, 5)])
def test_the_truth_is_what_the_rules_of_sessions_make_of_the_log(seed: int, streams: int) -> None:
    """Folded stream by stream in the log's order and closed by a marker, the log gives the truth."""
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
            (s.key, min(s.times), s.reason, sorted(json.loads(v)["line"] for v in s.values)) for s in closed
        ]

    assert sorted(found) == sorted((s.key, s.first_time, s.reason, s.lines) for s in visits.truth)


def test_the_log_is_the_same_on_every_machine() -> None:
    """Golden digests: whoever changes the log changes what the demo's numbers mean."""
    visits = generate(800, 1)

    assert (len(visits.lines), len(visits.truth)) == (20_681, 1_779)
    assert digest(visits) == "9def682a55e9c45c"
    assert digest(generate(800, 2)) != digest(visits)


def test_the_log_has_what_makes_sessions_hard() -> None:
    """Ends, silence, revisits soon after an end, long tails, lines out of order within bounds."""
    visits = generate(800, 1)
    reasons = [session.reason for session in visits.truth]
    lengths = sorted(session.fragments for session in visits.truth)
    highest = late = lines_late = 0
    for line in visits.lines:
        late = max(late, highest - line.time)
        lines_late += line.time < highest
        highest = max(highest, line.time)
    of_key: dict[str, list[Any]] = defaultdict(list)
    for session in visits.truth:
        of_key[session.key].append(session)
    revisits = [
        later.first_time - earlier.last_time
        for sessions in of_key.values()
        for earlier, later in pairwise(sessions)
    ]

    assert reasons.count("end") > 300
    assert reasons.count("gap") > 300
    assert min(revisits) < 5 * 60_000
    assert 0 < late <= DISORDER_MS
    assert lines_late > 1000
    assert lengths[len(lengths) // 2] <= 5
    assert MAX_LENGTH / 2 < lengths[-1] <= MAX_LENGTH
    assert len({line.path for line in visits.lines}) > 200
    assert any(not line.key.isascii() for line in visits.lines)


def digest(visits: Visits) -> str:
    return hashlib.sha256(repr((visits.lines, visits.truth)).encode()).hexdigest()[:16]
