"""Users pick a job by name; its parameters are checked and completed."""

from __future__ import annotations

import pytest

from services.control.core.runs.jobs import JOBS, ParametersInvalid, UnknownJob, job_named, parse_parameters


def test_an_unknown_job_is_answered_with_the_known_ones() -> None:
    """The error lists their names."""
    with pytest.raises(UnknownJob, match="audit, lake, maintain, reports"):
        job_named("report")


@pytest.mark.parametrize("name", JOBS)
def test_every_job_runs_without_parameters(name: str) -> None:
    """Defaults complete the parameters; a parameter without a default is left out."""
    parameters = parse_parameters(job_named(name), {})

    assert parameters == {
        parameter.name: parameter.default
        for parameter in JOBS[name].parameters
        if parameter.default is not None
    }


def test_all_faults_are_reported_at_once() -> None:
    """A wrong name, a wrong type and a value out of range are three faults in one error."""
    with pytest.raises(ParametersInvalid, match="the parameters of job 'reports' have faults") as caught:
        parse_parameters(JOBS["reports"], {"tip": 1, "top": 0, "item_path": 5})

    assert [name for name, _ in caught.value.faults] == ["tip", "item_path", "top"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top", True),
        ("top", "20"),
        ("top", 20.0),
        ("top", None),
        ("top", 1001),
        ("item_path", ""),
        ("item_path", "$"),
        ("item_path", "data.path"),
        ("item_path", "$.data'); drop"),
        ("item_path", "$" + ".a" * 600),
    ],
)
def test_an_invalid_value_is_refused(name: str, value: object) -> None:
    """Values are not converted: true is not an integer, and a path must be a JSON path."""
    with pytest.raises(ParametersInvalid) as caught:
        parse_parameters(JOBS["reports"], {name: value})

    assert [fault for fault, _ in caught.value.faults] == [name]


@pytest.mark.parametrize("path", ["$.a", "$.data.path", "$.items[0].name", "$['odd key'][12]"])
def test_json_paths_are_accepted(path: str) -> None:
    """Fields, indexes and quoted fields can be mixed."""
    assert parse_parameters(JOBS["reports"], {"item_path": path})["item_path"] == path


@pytest.mark.parametrize(
    "given",
    [
        {"streams": "0-5,7", "since": "2h", "sample": "0.25"},
        {"streams": "0", "since": "2026-11-23T12:00:00.5+01:00", "sample": ".001"},
    ],
)
def test_a_part_of_the_log_can_be_audited(given: dict[str, str]) -> None:
    """Streams, a time or a duration, and a share of the keys."""
    assert parse_parameters(JOBS["audit"], given) == given


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("streams", "a"),
        ("streams", "1-"),
        ("streams", 7),
        ("since", "2 h"),
        ("sample", "2"),
        ("sample", "1e-3"),
    ],
)
def test_a_part_that_is_not_one_is_refused(name: str, value: object) -> None:
    """Before a run begins."""
    with pytest.raises(ParametersInvalid):
        parse_parameters(JOBS["audit"], {name: value})
