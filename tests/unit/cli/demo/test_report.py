"""What a demo prints about the reports, the owners and the audit."""

from __future__ import annotations

from typing import Any

import pytest

from cli.demo.report import period_row, print_audit, print_ownership


def test_a_period_fits_on_one_line() -> None:
    """Durations are in seconds, related numbers share a cell, the start is cut to minutes."""
    row = {
        "start": "1995-08-01T07:00:00Z",
        "sessions": 119,
        "fragments": 1236,
        "duration_ms_p50": 55_000.0,
        "duration_ms_p99": 3_140_820.0,
        "length_p50": 6.0,
        "length_p99": 49.28,
        "ended_end": 1,
        "ended_gap": 118,
        "ended_limit": 0,
        "keys_new": 114,
        "keys_returning": 4,
    }

    cells = period_row(row)

    assert cells == ["1995-08-01 07:00", 119, 1236, "55/3,141", "6/49", "1/118/0", "114/4"]


def test_ownership_is_printed_by_owner(capsys: pytest.CaptureFixture[str]) -> None:
    """One line per owner, and one for the unowned streams."""
    rows: list[dict[str, Any]] = [
        {"stream": 0, "owner": "consumer-1", "epoch": 2, "counts": {"sessions": 5}},
        {"stream": 1, "owner": None, "epoch": 1, "counts": {"sessions": 0}},
        {"stream": 2, "owner": "consumer-1", "epoch": 4, "counts": {"sessions": 6}},
    ]

    print_ownership(rows)

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["consumer-1", "2", "4", "11", "0,", "2"] in lines
    assert ["nobody", "1", "1", "0", "1"] in lines


def test_an_audit_with_a_difference_shows_its_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """The counts of sessions first, then the verdict, the table, what was left out or trusted, examples."""
    example = {"kind": "missing", "id": "x", "stream": 3, "key": "h1", "detail": "offsets 0 … 4"}
    result: dict[str, Any] = {"missing": 1, "overdue": 8, "extra": 0, "different": 0}
    result |= {"judged": 9, "fragments": 40}
    result |= {"misrouted": 2, "lake_missing": 3, "lake_extra": 4, "lake_different": 5, "lake_duplicated": 6}
    result |= {"lake_days": 8, "trusted": [{"what": "the log", "why": "it is taken as it is"}]}
    result |= {"lake_judged": 7, "verdict": "differs", "examples": [example]}
    result |= {"left_out": [{"what": "routing", "why": "control has read no stream table"}]}

    print_audit(result)

    out = capsys.readouterr().out
    first, second, third, fourth, *_ = out.splitlines()
    assert first.startswith("audit: missing 1, overdue 8, extra 0, different 0 (9 sessions judged")
    assert first.endswith(": differs")
    assert second == (
        "  routing: 2 fragments in a wrong stream;"
        " table: missing 3, extra 4, different 5, duplicated 6, days 8 (7 sessions judged)"
    )
    assert third == "  not judged: routing, because control has read no stream table"
    assert fourth == "  taken on trust: the log (it is taken as it is)"
    assert "offsets 0 … 4" in out
