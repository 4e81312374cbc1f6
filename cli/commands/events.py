"""`baton events`: what happened lately, and with `-f` what happens, a line each.

Following goes over every reconnection: control is asked for what came after the last event that was seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import click
import msgspec

from cli.backoff import delay_for
from cli.client import connect
from cli.output import bytes_text, output_option, print_json, url_option
from cli.sse import ServerSentEvent
from shared.errors import Unavailable
from shared.model.events import KINDS
from shared.model.names import DEFAULT_GROUP

Params = dict[str, str | int | list[str]]


class EventSource(Protocol):
    """What `follow` needs of control: `BatonClient`, or a twin in tests."""

    def listen(
        self, path: str, params: Mapping[str, Any], last_event_id: str
    ) -> AsyncGenerator[ServerSentEvent]:
        """The server-sent events of one connection."""


@click.command("events")
@click.option("-f", "--follow", "is_followed", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 5000), default=50, show_default=True, help="Events at most."
)
@click.option("--group", default=None, help="Only those of this group.")
@click.option("--stream", type=click.IntRange(min=0), default=None, help="Only those of this stream.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only these; may be repeated.")
@click.option("--member", default=None, help="Only those of this member, as giver and as taker too.")
@url_option
@output_option
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
    """Show what happened lately: who joined, left, claimed, handed over, and why.

    With -f and -o json each event is a line of its own.
    """
    given = {"group": group, "stream": stream, "kind": list(kinds) or None, "member": member, "limit": limit}
    params: Params = {name: value for name, value in given.items() if value is not None}
    if is_followed:
        try:
            asyncio.run(_follow(url, params, _print_line if output == "json" else _print_event))
        except KeyboardInterrupt:
            return
    else:
        answer = asyncio.run(_get(url, params))
        if output == "json":
            print_json(answer)
            return
        for event in answer["events"]:
            _print_event(event)


def event_line(event: Mapping[str, Any]) -> str:
    """An event as a line for people: time (UTC), kind, stream, who, and what else is told.

    >>> event_line({"at": 5, "group": "default", "kind": "handover", "stream": 7, "from": "a", "to": "b",
    ...             "why": "drain", "epoch": 4, "sessions": 12, "pause_ms": 31.25, "warm": True})
    '1970-01-01 00:00:00.005Z  handover  stream 7    a → b  drain (epoch 4, warm, pause 31 ms, 12 sessions)'
    """
    at = event.get("at", 0)
    time = f"{datetime.fromtimestamp(at // 1000, UTC):%Y-%m-%d %H:%M:%S}.{at % 1000:03d}Z"
    stream = "" if event.get("stream") is None else f"stream {event['stream']}"
    who = event.get("from") or event.get("member", "")
    who = f"{who} → {event['to']}" if event.get("to") else who
    if event.get("group") != DEFAULT_GROUP:
        who += f" of {event.get('group')}"
    details = ", ".join(_details(event))
    rest = " ".join(part for part in (event.get("why", ""), f"({details})" if details else "") if part)
    return f"{time}  {event.get('kind', ''):<8}  {stream:<11} {who}  {rest}".rstrip()


def _details(event: Mapping[str, Any]) -> list[str]:
    told = []
    if event.get("epoch") is not None:
        told.append(f"epoch {event['epoch']}")
    if event.get("warm") is not None:
        told.append("warm" if event["warm"] else "replayed")
    for name, word in (("pause_ms", "pause"), ("copy_ms", "copy")):
        if event.get(name) is not None:
            told.append(f"{word} {event[name]:,.0f} ms")
    if event.get("sessions") is not None:
        told.append(f"{event['sessions']:,} sessions")
    if event.get("bytes") is not None:
        told.append(bytes_text(event["bytes"]))
    return told


async def follow(
    control: EventSource,
    params: Mapping[str, Any],
    on_trouble: Callable[[str], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[dict[str, Any]]:
    """The newest events and then whatever happens, for ever; each once, over every reconnection.

    `on_trouble` hears, in a sentence, why it waits or what it missed.
    """
    seen, attempt = "", 0
    while True:
        try:
            async with contextlib.aclosing(control.listen("/events", params, seen)) as listening:
                async for event in listening:
                    attempt = 0
                    seen = event.id or seen
                    if event.comment:
                        on_trouble(event.comment)
                    if event.data:
                        yield msgspec.json.decode(event.data, type=dict[str, Any])
        except Unavailable as error:
            if attempt == 0:
                on_trouble(f"{error.detail}; trying again")
        attempt += 1
        await sleep(delay_for(attempt, None, random.random()))


async def _follow(url: str, params: Params, show: Callable[[Mapping[str, Any]], None]) -> None:
    async with connect(url) as control:
        await control.get("/events", {"limit": 1})  # a wrong address is told at once, not tried for ever
        async for event in follow(control, params, lambda said: click.echo(f"baton: {said}", err=True)):
            show(event)


async def _get(url: str, params: Params) -> dict[str, Any]:
    async with connect(url) as control:
        answer: dict[str, Any] = await control.get("/events", params)
        return answer


def _print_event(event: Mapping[str, Any]) -> None:
    click.echo(event_line(event))


def _print_line(event: Mapping[str, Any]) -> None:
    click.echo(msgspec.json.encode(event).decode())
