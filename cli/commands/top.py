"""`baton top`: a group live in the terminal, and once in a pipe.

Three requests to control a frame: its members, its streams with the most lag, and the totals that come with
them. `frame` is pure, so it is tested without a terminal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.commands.show import failure_lines
from cli.http.client import BatonClient
from cli.http.control import connect_to_control
from cli.terminal.escaping import printable
from cli.terminal.interrupts import interruptible
from cli.terminal.layout import Column
from cli.terminal.options import group_option, url_option
from cli.terminal.output import cell_text, counted, pick, table_of, too_narrow
from shared.errors import Unavailable

EVERY_S = 2.0
LEAST_STREAMS = 5
MOST_MEMBERS = 20
"""Members that are shown; a group may have more."""
PIPED_LINES = 60
"""Lines of a frame without a terminal."""
AROUND = 10
"""Lines of a frame that are neither members nor streams: headings, rules and sums."""
MEMBERS: Mapping[str, Column] = {
    "MEMBER": Column("id"),
    "STATE": Column("state", rank=2),
    "OWNS": Column("owns"),
    "FRAGMENTS/S": Column("rates.fragments_per_s", rank=1),
    "SESSIONS/S": Column("rates.sessions_per_s", rank=3),
    "LEASE MS": Column("lease_ms", rank=4),
}
STREAMS: Mapping[str, Column] = {
    "STREAM": Column("stream"),
    "OWNER": Column("owner", rank=1),
    "STATE": Column("state", rank=3),
    "STATUS": Column("status"),
    "LAG": Column("lag"),
    "LAG MS": Column("lag_ms", rank=4),
    "RATE": Column("rate", rank=5),
    "OPEN SESSIONS": Column("open_sessions", rank=2),
}


class Seen(NamedTuple):
    """What one frame shows, as control answered: rows of members and of streams, totals, age in ms."""

    members: Sequence[Mapping[str, Any]]
    streams: Sequence[Mapping[str, Any]]
    totals: Mapping[str, Any]
    stale_ms: int


@click.command("top")
@click.option("--every", "every_s", type=click.FloatRange(min=0.2), default=EVERY_S, help="Seconds a frame.")
@group_option
@url_option
def top(every_s: float, group: str, url: str) -> None:
    """Watch a group live: its members with their rates, and its streams with the most lag, until Ctrl-C.

    Without a terminal it prints one frame.
    """
    console = Console(highlight=False)
    with interruptible(lambda: "nothing was changed"):
        asyncio.run(_show(console, url, group, every_s))


async def _show(console: Console, url: str, group: str, every_s: float) -> None:
    async with connect_to_control(url) as control:
        # before the screen is taken, so that a wrong address or group is one sentence
        seen = await _look(control, group, console)
        if not console.is_terminal:
            console.width = max(console.width, 120)
            console.print(frame(seen, group, PIPED_LINES, None))
            return
        await show_live(console, control, group, seen, lambda: asyncio.sleep(every_s))


async def show_live(
    console: Console, control: BatonClient, group: str, seen: Seen, pause: Callable[[], Awaitable[None]]
) -> None:
    """Fills the screen with what was `seen` first, and after each `pause` with what control says then."""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        complaint = ""
        while True:
            size = console.height, console.width
            drawn = frame(seen, group, *size, now=datetime.now(UTC), complaint=complaint)
            live.update(drawn, refresh=True)
            await pause()
            try:
                seen, complaint = await _look(control, group, console), ""
            except Unavailable as error:
                # the last frame stays, and says that it is not the present
                complaint = error.detail


async def _look(control: BatonClient, group: str, console: Console) -> Seen:
    of_group = {"group": group}
    members = await control.pages("/members", "members", "id", of_group)
    # control sorts: the streams with the most lag may be on any page
    query = {**of_group, "sort": "-lag", "limit": console.height if console.is_terminal else PIPED_LINES}
    streams = await control.get("/streams", query)
    return Seen(members["members"], streams["streams"], streams["totals"], streams["stale_ms"])


def frame(
    seen: Seen,
    group: str,
    height: int,
    width: int | None,
    *,
    now: datetime | None = None,
    complaint: str = "",
) -> RenderableType:
    """What the terminal shows in `height` lines: one of sums, the members, and the streams below.

    Columns for which its `width` has no room are left out and named; None leaves out none.
    """
    members = [
        {**row, "owns": len(row["streams"]), "lease_ms": _whole(row["lease_ms"])}
        for row in seen.members[:MOST_MEMBERS]
    ]
    room = max(LEAST_STREAMS, height - AROUND - len(members))
    failing = failure_lines(seen.streams)
    streams = seen.streams[: max(LEAST_STREAMS, room - len(failing))]
    left_out = len(seen.members) - len(members)
    parts: list[RenderableType] = [Text(summary(seen, group, now), style="bold")]
    if complaint:
        parts.append(Text(printable(f"{complaint}; this is the last answer"), style="red"))
    of_members, narrow = _table(MEMBERS, members, width)
    of_streams, narrow_too = _table(STREAMS, streams, width)
    parts.append(of_members)
    if left_out:
        parts.append(Text(f"and {left_out:,} more members"))
    parts += [of_streams, *map(Text, failing)]
    if unshown := dict.fromkeys((*narrow, *narrow_too)):
        parts.append(Text(too_narrow(unshown)))
    return Group(*parts)


def summary(seen: Seen, group: str, now: datetime | None = None) -> str:
    """The first line: the sums over the group.

    >>> totals = {"streams": 24, "lag": 1200, "open_sessions": None, "sessions": 7}
    >>> summary(Seen([{"rates": {"fragments_per_s": 2.5}}], [], totals, 120), "default")
    'default: 24 streams, 1 member, lag 1,200, 2.50 fragments/s, - open sessions, 7 delivered, 120 ms old'
    """
    rates = [pick(row, "rates.fragments_per_s") for row in seen.members]
    # a part of the sum would look like all
    rate = None if None in rates else float(sum(rates))
    values = [
        f"{seen.totals['streams']:,} streams",
        counted(len(seen.members), "member"),
        f"lag {cell_text(seen.totals['lag'])}",
        f"{cell_text(rate)} fragments/s",
        f"{cell_text(seen.totals['open_sessions'])} open sessions",
        f"{cell_text(seen.totals['sessions'])} delivered",
        f"{seen.stale_ms:,} ms old",
    ]
    return f"{f'{now:%H:%M:%S}Z  ' if now else ''}{group}: {', '.join(values)}"


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _table(
    columns: Mapping[str, Column], rows: Iterable[Mapping[str, Any]], width: int | None
) -> tuple[Table, list[str]]:
    return table_of(columns, ([pick(row, str(one.cell)) for one in columns.values()] for row in rows), width)
