"""The parameters of the job `reports`: every fault at once, and what the sound ones mean."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.core.runs.jobs import JOBS, ParametersInvalid, parse_parameters
from services.control.spark.reports.plan import DEFAULTS, QUARTER_MS, parse_plan, plan_faults, split_paths
from shared.errors import InvalidInput

ZONES = sorted(available_timezones() - {"localtime"})


def test_every_fault_is_reported_at_once() -> None:
    """Also those that only show in several parameters together, and those that only the job knows."""
    wrong: dict[str, Any] = {"zone": "Europe/Bern", "period": "hour,month", "from": "2026-02-30", "top": 9}
    wrong |= {"to": "2026-02-01T12:00:00", "item_rules": "[=>x", "report": "default"}

    with pytest.raises(ParametersInvalid) as caught:
        parse_parameters(JOBS["reports"], wrong | {"tip": 1}, plan_faults)

    names = {"tip", "zone", "period", "from", "to", "item_rules"}
    assert {name for name, _ in caught.value.faults} == names
    assert {name for name, _ in plan_faults(wrong)} == names - {"tip"}
    with pytest.raises(InvalidInput, match="period must be one or several of hour, day, week"):
        parse_plan(wrong)


@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        ({"from": "2026-01-02", "to": "2026-01-02"}, "to must be later than `from`"),
        ({"from": "2026-01-02T00:07:00Z"}, "from must be on a quarter of an hour"),
        ({"to": "9999-01-02"}, "to must lie in the years 1970 … 9998"),
        ({"item_rules": "a>b"}, "item_rules 'a>b' is not PATTERN=>REPLACEMENT"),
        ({"item_paths": "$.a;$.b"}, "item_paths must be a JSON path like"),
        ({"item_paths": ",".join(f"$.a{n}" for n in range(11))}, "item_paths must name at most 10 paths"),
        ({"cut_query": "maybe"}, "cut_query must be yes or no"),
        ({"report": "Q1"}, "report must be a name of small letters"),
        ({"top": 0}, "top must be an integer"),
        ({"zone": 5}, "zone must be a string"),
        ({"zone": "../etc/passwd"}, "is not the name of a time zone"),
    ],
)
def test_a_fault_says_what_to_write_instead(parameters: dict[str, Any], fault: str) -> None:
    """One fault alone is the whole message."""
    with pytest.raises(InvalidInput) as caught:
        parse_plan(parameters)

    assert fault in str(caught.value)
    assert ";" not in str(caught.value).replace("$.a;$.b", "")


def test_the_registry_and_the_plan_have_the_same_defaults() -> None:
    """A run that control starts and one by hand are the same report."""
    assert parse_parameters(JOBS["reports"], {}) == DEFAULTS
    assert parse_plan(DEFAULTS) == parse_plan({})


@given(zone=st.sampled_from(ZONES), day=st.dates(date(1980, 1, 1), date(2090, 1, 1)))
def test_a_date_means_its_midnight_in_the_zone(zone: str, day: Any) -> None:
    """A week from there is seven days on the wall clock, whatever the clocks do in between."""
    plan = parse_plan({"from": f"{day}", "to": f"{day + timedelta(days=7)}", "zone": zone})

    assert plan.start_ms is not None
    assert plan.end_ms is not None
    assert plan.start_ms % QUARTER_MS == 0
    local = datetime.fromtimestamp(plan.start_ms / 1000, UTC).astimezone(ZoneInfo(zone))
    # where clocks are set forward at midnight, the day begins when they have been
    assert (local.date(), local.hour <= 1) == (day, True) or local.hour == 0


@given(st.lists(st.sampled_from(["$.a", "$.a.b", "$['x,y']", "$.list[3].n", "$['$.a,$.b']"]), min_size=1))
def test_a_list_of_paths_is_split_at_its_commas_alone(paths: list[str]) -> None:
    """Commas within a quoted field belong to it; a path that comes twice counts once."""
    assert split_paths(",".join(paths)) == tuple(dict.fromkeys(paths))
