"""The requests that commands have in common: read an object or a list, start something, wait for its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from rich.progress import MofNCompleteColumn

from cli.http.client import BatonClient
from cli.http.control import connect_to_control
from cli.terminal.output import (
    Columns,
    print_csv,
    print_json,
    print_json_lines,
    print_objects,
    progress_bar,
)

PATIENCE_S = 2.0
WAIT_PATIENCE_S = 60.0
"""How long a request is retried with --wait: a restart of control must not end the wait."""
POLL_S = 0.2
END_STATES = frozenset({"succeeded", "done", "failed", "cancelled"})
"""The last states of runs and of operations."""

Answer = dict[str, Any]


class Progress(NamedTuple):
    """What the bar shows of a run or an operation; `total` is None while it is unknown."""

    text: str
    completed: int
    total: int | None


def ask(
    url: str, call: Callable[[BatonClient], Awaitable[Answer]], *, patience_s: float = PATIENCE_S
) -> Answer:
    """What one call of control returns."""

    async def connected() -> Answer:
        async with connect_to_control(url, patience_s=patience_s) as control:
            return await call(control)

    return asyncio.run(connected())


def get(url: str, path: str, params: Mapping[str, Any] | None = None) -> Answer:
    """The JSON object at `path` of control."""
    return ask(url, lambda control: control.get(path, params))


def get_list(url: str, name: str, cursor: str, params: Mapping[str, str] | None = None) -> Answer:
    """Control's list `/name` with all its pages; `cursor` is the field that the next page starts after.

    `params` may choose rows (`owner`, `state`, …) and their order (`sort`), which is control's work.
    """
    return ask(url, lambda control: control.pages(f"/{name}", name, cursor, params))


def print_list(answer: Answer, name: str, output: str, columns: Columns) -> None:
    """Prints control's answer as JSON, or the objects of its array `name` as lines, as CSV or as a table."""
    match output:
        case "json":
            print_json(answer)
        case "jsonl":
            print_json_lines(answer[name])
        case "csv":
            print_csv(answer[name])
        case _:
            print_objects(columns, answer[name])


async def start(
    url: str,
    call: Callable[[BatonClient], Awaitable[Answer]],
    path: str,
    progress_of: Callable[[Mapping[str, Any]], Progress],
    *,
    wait: bool,
    on_started: Callable[[Answer], None] = lambda _: None,
) -> Answer:
    """The run or operation as `call` started it; with `wait` once it has ended, behind a progress bar.

    Control serves it at `path`/<id>. `on_started` gets it as it was started.
    """
    async with connect_to_control(url, patience_s=WAIT_PATIENCE_S if wait else PATIENCE_S) as control:
        started = await call(control)
        on_started(started)
        if not wait:
            return started
        # only from here on, so that a refused request leaves no bar behind
        return await _follow(control, f"{path}/{quote(started['id'], safe='')}", progress_of)


async def follow(url: str, path: str, progress_of: Callable[[Mapping[str, Any]], Progress]) -> Answer:
    """The run or operation at `path` once it has ended; shows a progress bar until then."""
    async with connect_to_control(url, patience_s=WAIT_PATIENCE_S) as control:
        await control.get(path)  # show no bar if it does not exist
        return await _follow(control, path, progress_of)


async def _follow(
    control: BatonClient, path: str, progress_of: Callable[[Mapping[str, Any]], Progress]
) -> Answer:
    with progress_bar(MofNCompleteColumn()) as bar:
        task = bar.add_task("", total=None)

        def draw(answer: Mapping[str, Any]) -> None:
            text, completed, total = progress_of(answer)
            bar.update(task, description=text, completed=completed, total=total)

        # with the patience of this client, so that a restart of control does not end the wait
        return await wait_until_ended(control, path, draw)


async def wait_until_ended(
    control: BatonClient, path: str, on_progress: Callable[[Mapping[str, Any]], None] = lambda _: None
) -> Answer:
    """The run or operation at `path` once it has ended; `on_progress` gets every answer."""
    while True:
        answer: Answer = await control.get(path)
        on_progress(answer)
        # after `on_progress`, so that the bar shows the end as well
        if answer["state"] in END_STATES:
            return answer
        await asyncio.sleep(POLL_S)
