"""`baton events`: recent events, and with `-f` new ones as they happen, one per line.

Following survives every reconnection: it asks control for what came after the last event it received.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import click
import msgspec
from rich.filesize import decimal

from cli.commands.control import Answer, ask, print_list
from cli.http.client import BatonClient
from cli.http.control import connect_to_control
from cli.http.sse import ServerSentEvent
from cli.terminal.escaping import echo, printable
from cli.terminal.interrupts import interruptible
from cli.terminal.lists import check_followed, formats_option
from cli.terminal.options import url_option
from cli.terminal.output import counted, print_json_lines
from shared.backoff import Backoff
from shared.errors import NotFound, Unavailable
from shared.model.events import KINDS
from shared.model.names import DEFAULT_GROUP

Params = dict[str, str | int | list[str]]


Listen = Callable[[str], AsyncGenerator[ServerSentEvent]]
"""The server-sent events of one connection, after the event with that id; "" begins with the newest."""
DETAILS: dict[str, Callable[[Any], str]] = {
    "epoch": "epoch {}".format,
    "warm": lambda is_warm: "warm" if is_warm else "replayed",
    "pause_ms": "pause {:,.0f} ms".format,
    "copy_ms": "copy {:,.0f} ms".format,
    "sessions": "{:,} sessions".format,
    "bytes": decimal,
    "operation": "operation {}".format,
    "run": "run {}".format,
}
"""The fields shown in parentheses, in this order, and how; an event has only those that apply to its kind."""


@click.command("events")
@click.option("-f", "--follow", "is_followed", is_flag=True, help="Keep printing new events until Ctrl-C.")
@click.option("-n", "--limit", type=click.IntRange(1, 5000), default=50, help="Most events to show.")
@click.option("--group", help="Only events of this group.")
@click.option("--stream", type=click.IntRange(min=0), help="Only events of this stream.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only this kind; repeatable.")
@click.option("--member", help="Only events of this member, on either side of a move.")
@url_option
@formats_option
def events(
    is_followed: bool,
    limit: int,
    group: str | None,
    stream: int | None,
    kinds: tuple[str, ...],
    member: str | None,
    url: str,
    output: str,
) -> None:
    """Show recent events: which member joined, left, claimed or handed over what, and why.

    With -f, events are lines, of JSON with -o json or -o jsonl.
    """
    filters = {"group": group, "stream": stream, "kind": list(kinds) or None, "member": member}
    params: Params = {name: value for name, value in filters.items() if value is not None}
    params["limit"] = limit
    if is_followed:
        check_followed(output)
        shown = 0

        def show(event: Mapping[str, Any]) -> None:
            nonlocal shown
            _print_event(event) if output == "text" else print_json_lines([event])
            shown += 1

        with interruptible(lambda: f"stopped after {counted(shown, 'event')}"):
            asyncio.run(_follow(url, params, show))
        return
    # one page: `--limit` never exceeds it
    answer = ask(url, lambda control: _events(control, params))
    if output != "text":
        print_list(answer, "events", output, {})
        return
    for event in answer["events"]:
        _print_event(event)


def event_line(event: Mapping[str, Any]) -> str:
    """An event as a line for people: time (UTC), kind, stream, members or who did what, and the details.

    >>> event_line({"at": 5, "group": "default", "kind": "handover", "stream": 7, "from": "a", "to": "b",
    ...             "why": "drain", "epoch": 4, "sessions": 12, "pause_ms": 31.25, "warm": True})
    '1970-01-01 00:00:00.005Z  handover  stream 7    a → b  drain (epoch 4, warm, pause 31 ms, 12 sessions)'
    """
    at = event.get("at", 0)
    time = f"{datetime.fromtimestamp(at // 1000, UTC):%Y-%m-%d %H:%M:%S}.{at % 1000:03d}Z"
    stream = "" if event.get("stream") is None else f"stream {event['stream']}"
    # a handover and a takeover have `from`; other kinds name one `member`
    members = event.get("from") or event.get("member", "")
    members = f"{members} → {event['to']}" if event.get("to") else members
    if event.get("who"):
        members = f"{event['who']}: {event.get('what', '')}"
    # most installations have one group: naming it on every line would only hide the rest
    if event.get("group") != DEFAULT_GROUP:
        members += f" of {event.get('group')}"
    details = ", ".join(show(event[name]) for name, show in DETAILS.items() if event.get(name) is not None)
    rest = " ".join(part for part in (event.get("why", ""), f"({details})" if details else "") if part)
    return printable(f"{time}  {event.get('kind', ''):<8}  {stream:<11} {members}  {rest}".rstrip())


async def follow(
    listen: Listen,
    warn: Callable[[str], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[dict[str, Any]]:
    """The newest events, then every new one without end; each exactly once, across all reconnections.

    `warn` gets a sentence when the connection fails (once per outage) and when events are missing.
    """
    last_id, backoff = "", Backoff()
    is_connected = True
    while True:
        try:
            async with contextlib.aclosing(listen(last_id)) as listening:
                async for event in listening:
                    is_connected = True  # so the next failure is a new outage
                    backoff.reset()
                    # also without data: control sends a bare id past events that the filters hide
                    last_id = event.id or last_id
                    if event.comment:
                        warn(event.comment)
                    if event.data:
                        yield msgspec.json.decode(event.data, type=dict[str, Any])
        except Unavailable as error:
            if is_connected:
                warn(f"{error.detail}; trying again")
        # an orderly end of the response, too: control closes it when it stops
        is_connected = False
        await sleep(backoff.next_s())


async def _events(control: BatonClient, params: Params) -> Answer:
    """The newest events. Raises NotFound if there are none and control knows no such group, stream or member.

    A name that has events is known, even if nothing bears it any more.
    """
    answer: Answer = await control.get("/events", params)
    if not answer["events"]:
        await _check_names(control, params.get("group"), params.get("stream"), params.get("member"))
    return answer


async def _check_names(control: BatonClient, group: Any, stream: Any, member: Any) -> None:
    # for these two control has the sentence; every group has the same streams
    if group is not None:
        await control.get("/plan", {"group": group})
    if stream is not None:
        groups = (await control.get("/groups", {"limit": 1}))["groups"]
        if group is not None or groups:
            await control.get(f"/streams/{stream}", {"group": group or groups[0]["name"]})
    if member is not None:
        where = {} if group is None else {"group": group}
        members = (await control.pages("/members", "members", "id", where))["members"]
        if member not in {row["id"] for row in members}:
            of_group = "" if group is None else f" in group {group!r}"
            raise NotFound(f"there is no member {member!r}{of_group}")


async def _follow(url: str, params: Params, show: Callable[[Mapping[str, Any]], None]) -> None:
    async with connect_to_control(url) as control:
        # fails at once on a wrong address or an unknown name, instead of waiting
        await _events(control, {**params, "limit": 1})
        listen = functools.partial(control.listen, "/events", params)
        async for event in follow(listen, lambda text: echo(f"baton: {text}", err=True)):
            show(event)


def _print_event(event: Mapping[str, Any]) -> None:
    echo(event_line(event))
