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


@pytest.mark.parametrize(
    ("verdict", "more", "code", "words"),
    [
        ("exact", {}, 0, ""),
        ("within the promise of at_most_once", {"missing": 3}, 0, ""),
        ("nothing judged", {}, 1, "the audit judged nothing"),
        ("differs", {"lake_missing": 2}, 1, "missing 0, extra 0, different 0, lake_missing 2"),
        ("differs", {"missing": 3}, 1, "missing 3, extra 0, different 0"),
        ("differs", {"overdue": 4}, 1, "missing 0, extra 0, different 0, overdue 4"),
        ("a word of a later version", {}, 1, "the audit found differences"),
    ],
)
def test_the_verdict_of_an_audit_decides(verdict: str, more: dict[str, int], code: int, words: str) -> None:
    """What the delivery permits is a success; an audit that judges nothing proves nothing."""
    result = {"missing": 0, "extra": 0, "different": 0, "lake_missing": 0} | more | {"verdict": verdict}
    control = control_with(audit=[run_of("audit", "succeeded", result=result)])

    answer = invoke(control, "run", "audit", "--wait")

    assert answer.exit_code == code
    assert words in answer.stderr


@pytest.mark.parametrize("given", [("--streams", "7"), ("-p", "streams=7")])
def test_a_part_of_the_log_is_named_by_options(given: tuple[str, str]) -> None:
    """They are parameters of the audit; the number of a single stream is a text."""
    control = control_with(audit=[run_of("audit", "running")])

    answer = invoke(control, "run", "audit", *given, "--since", "2h", "--sample", "0.1")

    assert answer.exit_code == 0
    assert control.started == [("audit", "default", {"streams": "7", "since": "2h", "sample": "0.1"})]


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


def test_schedules_are_listed() -> None:
    """With their periods, states and times; without one, the command says how to set them."""
    schedule = {
        "name": "lake,reports",
        "every_s": 900,
        "state": "retrying",
        "next_at": 1_700_000_002_500,
        "succeeded_at": None,
        "failures": 2,
        "run": "r7",
    }
    some, none = InMemoryControl(), InMemoryControl()
    some.answers = {"/schedules": {"schedules": [schedule]}}
    none.answers = {"/schedules": {"schedules": []}}

    listed = invoke(some, "schedules").output

    parts = ("lake,reports", "15m", "retrying", "2023-11-14 22:13:22Z", "r7")
    assert [part for part in parts if part not in listed] == []
    assert "BATON_SCHEDULES" in invoke(none, "schedules").output


PARAMETERS: dict[str, Any] = {"lake": [], "reports": [{"name": "top"}], "audit": []}


def chain(**states: str) -> InMemoryControl:
    """A control with three jobs; each run ends in its state."""
    result = {"missing": 0, "extra": 0, "different": 0}
    control = control_with(
        **{job: [run_of(job, states.get(job, "succeeded"), result=result)] for job in PARAMETERS}
    )
    jobs = [{"name": name, "description": "", "parameters": known} for name, known in PARAMETERS.items()]
    control.answers = {"/jobs": {"jobs": jobs}}
    return control


def test_several_jobs_run_one_after_another() -> None:
    """Each gets the parameters that it has, and all the limit."""
    control = chain()

    answer = invoke(
        control,
        *("run", "lake", "reports", "audit", "-p", "top=3", "--wait", "--timeout", "90", "-o", "json"),
    )

    assert answer.exit_code == 0, answer.output
    assert control.started == [
        ("lake", "default", {}),
        ("reports", "default", {"top": 3}),
        ("audit", "default", {}),
    ]
    assert [run["job"] for run in json.loads(answer.stdout)["runs"]] == ["lake", "reports", "audit"]
    assert [query["timeout_s"] for path, query in control.queries if path.endswith("/runs")] == ["90.0"] * 3


def test_a_run_that_fails_ends_the_chain() -> None:
    """What follows might work on what it has not done."""
    control = chain(reports="failed")

    answer = invoke(control, "run", "lake", "reports", "audit", "--wait")

    assert answer.exit_code == 1
    assert [job for job, *_ in control.started] == ["lake", "reports"]
    assert "run lake of lake: succeeded" in answer.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lake", "audit"], "add --wait"),
        (["lake", "audit", "--wait", "-p", "top=3"], "none of these jobs has a parameter 'top'"),
    ],
)
def test_a_chain_that_cannot_be_is_refused_before_it_begins(arguments: list[str], words: str) -> None:
    """Without --wait nobody would start the second job; a parameter may be misspelt."""
    control = chain()

    answer = invoke(control, "run", *arguments)

    assert answer.exit_code == 2
    assert words in answer.output
    assert control.started == []


def test_a_run_is_shown_with_its_result_or_the_reason() -> None:
    """Also one that somebody else has started."""
    failed = run_of("lake", "failed", error={"condition": "DriverLost", "message": "gone"})
    control = control_with(audit=[run_of("audit", "succeeded", result={"judged": 77})], lake=[failed])

    shown, reason = (invoke(control, "runs", "show", name) for name in ("audit", "lake"))

    assert [word for word in ("audit: succeeded", "judged", "77") if word not in shown.output] == []
    assert "DriverLost: gone" in reason.output
    assert (shown.exit_code, reason.exit_code) == (0, 0)


@pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("cancelled", 1)])
def test_a_run_can_be_followed_by_anybody(state: str, code: int) -> None:
    """Its end decides the exit code, as for who has started it."""
    control = control_with(lake=[run_of("lake", "running"), run_of("lake", "running"), run_of("lake", state)])

    answer = invoke(control, "runs", "attach", "lake")

    assert answer.exit_code == code
    assert f"run lake of lake: {state}" in answer.output


def test_the_log_of_a_run_is_printed_to_its_end() -> None:
    """As it is where it goes into a pipe, and part after part while the run goes on."""
    control = control_with(lake=[run_of("lake", "running"), run_of("lake", "succeeded")])
    text = "started\n\tat Java\x1b[2J\n"
    control.answers = {"/runs/lake/log": {"first": 0, "next": len(text), "size": len(text), "text": text}}

    answer = invoke(control, "runs", "log", "lake", "--follow")

    assert answer.exit_code == 0
    assert answer.output.startswith(text)
    after = [query.get("after") for path, query in control.queries if path.endswith("/log")]
    assert after == [None, str(len(text))]
