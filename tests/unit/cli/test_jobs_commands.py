"""Spark jobs from the command line, against an in-memory control behind real HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import Result

from tests.unit.cli.fake_services import InMemoryControl, baton


def run_of(job: str, state: str, **members: Any) -> dict[str, Any]:
    return {
        "id": job,
        "job": job,
        "group": "default",
        "state": state,
        "progress": {"tasks": 8, "completed": 3},
        "started_at": 1_700_000_000_000,
    } | members


def invoke(control: InMemoryControl, *arguments: str) -> Result:
    return baton(control.answer, *arguments)


def control_with(**scripts: list[dict[str, Any]]) -> InMemoryControl:
    control = InMemoryControl()
    control.scripts.update(scripts)
    return control


def test_wait_follows_a_run_to_its_end_and_prints_its_result() -> None:
    """Single values are in one table, each list in a table of its own."""
    result = {"sessions": 1234, "top": [{"item": "/a", "count": 3}, {"item": "/b", "count": 2}], "nested": {}}
    control = control_with(
        reports=[
            run_of("reports", "starting"),
            run_of("reports", "running"),
            run_of("reports", "succeeded", result=result),
        ]
    )

    parameters = ("-p", "top=2", "-p", "item_path=$.data.url")
    answer = invoke(control, "run", "reports", *parameters, "--wait", "--group", "g")

    assert answer.exit_code == 0
    assert control.started == [("reports", "g", {"top": 2, "item_path": "$.data.url"})]
    assert [cell for cell in ("succeeded", "1,234", "/a", "/b", "item") if cell not in answer.output] == []


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (run_of("lake", "failed", error={"condition": "DriverLost", "message": "gone"}), "DriverLost: gone"),
        (run_of("lake", "cancelled"), "cancelled"),
    ],
)
def test_a_run_that_does_not_succeed_makes_the_exit_code_1(ended: dict[str, Any], reason: str) -> None:
    """The reason is printed on one line."""
    result = invoke(control_with(lake=[ended]), "run", "lake", "--wait")

    assert result.exit_code == 1
    assert reason in result.stderr


@pytest.mark.parametrize(("extra", "code"), [(0, 0), (1, 1)])
def test_an_audit_with_differences_is_not_a_success(extra: int, code: int) -> None:
    """A failed proof must not look like a valid one; the counts are printed in both cases."""
    result = {"missing": 0, "extra": extra, "different": 0}
    control = control_with(audit=[run_of("audit", "succeeded", result=result)])

    answer = invoke(control, "run", "audit", "--wait", "-o", "json")

    assert answer.exit_code == code
    assert json.loads(answer.stdout)["result"] == result
    assert ("the audit found differences: missing 0, extra 1, different 0" in answer.stderr) is bool(extra)


def test_without_wait_the_id_of_the_run_is_printed() -> None:
    """So that one can look at it later."""
    answer = invoke(control_with(lake=[run_of("lake", "running")]), "run", "lake")

    assert answer.exit_code == 0
    assert "run lake of lake is starting" in answer.output


def test_a_parameter_must_be_name_equals_value() -> None:
    """Anything else is a usage error."""
    answer = invoke(control_with(lake=[run_of("lake", "running")]), "run", "lake", "--param", "top")

    assert answer.exit_code == 2
    assert "is not NAME=VALUE" in answer.output


def test_jobs_and_runs_are_listed_and_a_run_cancelled() -> None:
    """With parameters and defaults, states, tasks, times and conditions."""
    ended = run_of("lake", "failed", ended_at=1_700_000_002_500, error={"condition": "X", "message": "y"})
    parameter = {"name": "top", "type": "integer", "description": "how many", "default": 20}
    control = control_with(lake=[run_of("lake", "cancelled")])
    control.answers = {
        "/jobs": {"jobs": [{"name": "reports", "description": "Computes.", "parameters": [parameter]}]},
        "/runs": {"runs": [ended]},
    }

    jobs, runs, cancelled = (invoke(control, *a) for a in (["jobs"], ["runs"], ["cancel", "lake"]))

    assert "reports top: how many (default 20)" in jobs.output
    assert [c for c in ("failed", "3/8", "2023-11-14 22:13:20Z", "2.50", "X") if c not in runs.output] == []
    assert "run lake: X: y" in runs.output.splitlines()
    assert cancelled.output == "run lake is cancelled\n"
