"""What the verdict of an audit rests on unseen."""

from __future__ import annotations

from typing import Any

import pytest

from services.control.spark.audit.trusted import ALWAYS, OLDER, REPORTS, trusted
from services.control.spark.lake.sums import Sums

WHOLE: dict[str, Any] = {"is_whole": True, "has_table": True, "sums": Sums(), "has_reports": False}


@pytest.mark.parametrize(
    ("run", "found"),
    [
        ({}, []),
        ({"has_table": False, "sums": None}, []),
        ({"has_reports": True}, [REPORTS]),
        # a table of an earlier Baton, before and after its first new rows
        ({"sums": None}, [OLDER]),
        ({"sums": Sums(since="2026-12-01")}, [OLDER]),
        ({"is_whole": False, "has_reports": False}, [OLDER, REPORTS]),
    ],
)
def test_the_verdict_names_what_it_takes_on_trust(run: dict[str, Any], found: list[str]) -> None:
    """What no audit can see, and what of the lake this one has not compared."""
    rows = trusted(**WHOLE | run)

    assert [row["what"] for row in rows] == [*ALWAYS, *found]
    assert all(row["why"] for row in rows)
