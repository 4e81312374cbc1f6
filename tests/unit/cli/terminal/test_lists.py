"""What all lists share: formats for programs, sorting and filters by control, `--watch`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

import click
import httpx
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from cli.main import COMMANDS
from cli.terminal.lists import FILTERS, FORMATS, watch
from cli.terminal.output import print_csv
from shared.errors import Unavailable
from tests.unit.cli.commands.test_show import ANSWERS
from tests.unit.cli.fake_services import InMemoryControl, baton
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.sources import small_baton

ROWS = {name: name for name in ("streams", "members", "producers", "groups")} | {"plan": "moves"}
LISTS = [*ROWS, "lag", "operations", "jobs", "runs", "schedules"]
MORE_LISTS = ["events", "sessions", "rejected"]
texts = st.text(alphabet=st.characters(codec="utf-8"))
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts
rows_of = st.lists(
    st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), scalars | st.lists(scalars, max_size=3)),
    max_size=5,
)


def parameters_of(name: str) -> dict[str, click.Parameter]:
    """A command's parameters by their flags."""
    return {flag: parameter for parameter in COMMANDS[name].load().params for flag in parameter.opts}


@pytest.mark.parametrize("name", [*LISTS, *MORE_LISTS])
def test_every_list_has_every_format(name: str) -> None:
    """A script need not remember which list can do what."""
    kind = parameters_of(name)["--output"].type

    assert isinstance(kind, click.Choice)
    assert tuple(kind.choices) == FORMATS


@pytest.mark.parametrize("name", LISTS)
def test_every_list_of_control_can_be_watched(name: str) -> None:
    """With a default, so that `--watch` alone is enough."""
    assert parameters_of(name)["--watch"].flag_value == 2.0  # type: ignore[attr-defined]


async def test_every_list_that_control_sorts_has_the_option() -> None:
    """Control's own document says which do."""
    app = await app_of(small_baton(), InMemoryRunner())
    sorted_ = {
        path.removeprefix("/")
        for path, routes in app.openapi()["paths"].items()
        if any(one["name"] == "sort" for one in routes.get("get", {}).get("parameters", ()))
    }

    assert {name for name in LISTS if "--sort" in parameters_of(name)} == (sorted_ & {*LISTS}) | {"lag"}


@pytest.mark.parametrize("name", ROWS)
def test_lines_and_csv_have_controls_rows_whole(name: str) -> None:
    """One row a line, with every field, in control's order; totals are no row."""
    control = InMemoryControl(ANSWERS)
    expected = ANSWERS[f"/{name}"][ROWS[name]]

    lines = baton(control.answer, name, "-o", "jsonl")
    table = baton(control.answer, name, "-o", "csv")

    assert [json.loads(line) for line in lines.stdout.splitlines()] == expected
    read = list(csv.DictReader(io.StringIO(table.stdout)))
    names = list(dict.fromkeys(name for row in expected for name in row))
    assert [[*row] for row in read] == [names] * len(expected)
    assert [row[next(iter(row))] for row in read] == [str(row[next(iter(row))]) for row in expected]


@given(rows_of)
def test_csv_can_be_read_back(rows: list[dict[str, object]]) -> None:
    """Whatever the texts contain: separators, quotes, line breaks; null and a missing field are empty."""
    runner = CliRunner()

    @click.command()
    def show() -> None:
        print_csv(rows)

    output = runner.invoke(show).stdout_bytes.decode()
    read = list(csv.DictReader(io.StringIO(output, newline="")))

    names = list(dict.fromkeys(name for row in rows for name in row))
    assert read == [{name: in_csv(row.get(name)) for name in names} for row in rows if names]


def in_csv(value: object) -> str:
    """A value as its cell."""
    if isinstance(value, bool | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "" if value is None else str(value)


def test_sorting_and_filters_are_controls_work() -> None:
    """They travel as query parameters: a page that was sorted here would be one of another list."""
    control = InMemoryControl({**ANSWERS, "/operations": {"operations": []}, "/runs": {"runs": []}})

    chosen = {"sort": "-lag", "owner": "consumer-0", "status": "STOP", "state": "running"}
    options = [word for name, value in chosen.items() for word in (f"--{name}", value)]

    baton(control.answer, "streams", *options)
    baton(control.answer, "runs", "--job", "lake", "--state", "failed")
    baton(control.answer, "operations", "--state", "running")

    page = {"limit": "1000"}
    assert control.queries == [
        ("/streams", {"group": "default", **chosen, **page}),
        ("/runs", {"job": "lake", "state": "failed", **page}),
        ("/operations", {"state": "running", **page}),
    ]


def test_a_sorted_list_goes_on_at_its_own_cursor() -> None:
    """Control names the next page, however short this one is; the query stays the same."""
    pages = {None: ([{"id": "b"}], "x"), "x": ([{"id": "a"}], "y"), "y": ([{"id": "c"}], None)}
    asked = []

    async def answer(request: httpx.Request) -> httpx.Response:
        asked.append(dict(request.url.params))
        rows, following = pages[request.url.params.get("cursor")]
        return httpx.Response(200, json={"operations": rows, "next": following})

    listed = baton(answer, "operations", "--sort", "-id", "-o", "json")

    assert [row["id"] for row in json.loads(listed.stdout)["operations"]] == ["b", "a", "c"]
    assert [query.get("cursor") for query in asked] == [None, "x", "y"]
    assert {query["sort"] for query in asked} == {"-id"}


@pytest.mark.parametrize("name", FILTERS)
def test_every_filter_is_one_of_some_list(name: str) -> None:
    """The table of filters has no row that nothing uses."""
    assert any(f"--{name}" in parameters_of(command) for command in LISTS)


def times(count: int) -> Callable[[float], None]:
    """A sleep that is interrupted the `count`-th time, as by Ctrl-C."""
    left = iter(range(count - 1))

    def sleep(_: float) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    return sleep


def watched(show: Callable[[], None], sleep: Callable[[float], None]) -> tuple[int, str]:
    """The exit code and standard error of a command that watches."""

    @click.command()
    def command() -> None:
        watch(show, 2.0, sleep)

    result = CliRunner().invoke(command)
    return result.exit_code, result.stderr


def test_a_watched_list_is_shown_until_ctrl_c() -> None:
    """Which ends it like any command, with the number of readings."""
    shown: list[int] = []

    code, said = watched(lambda: shown.append(1), times(3))

    assert (code, len(shown)) == (130, 3)
    assert said.splitlines()[-1] == "baton: interrupted: stopped after 3 readings"


def test_an_outage_does_not_end_a_watch() -> None:
    """It is reported, and the next reading may succeed; but a wrong address ends the command at once."""
    answers = iter([None, Unavailable("control does not answer"), None])

    def show() -> None:
        if (error := next(answers)) is not None:
            raise error

    code, said = watched(show, times(3))

    assert code == 130
    assert "baton: control does not answer; trying again" in said.splitlines()

    with pytest.raises(Unavailable):
        watch(lambda: (_ for _ in ()).throw(Unavailable("nobody")), 2.0, times(1))


def test_without_watch_a_list_is_shown_once() -> None:
    """And nobody sleeps."""
    shown: list[int] = []

    watch(lambda: shown.append(1), None, times(0))

    assert shown == [1]
