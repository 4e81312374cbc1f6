"""`baton top` and `baton stream`: a group at a glance, and one stream in full."""

from __future__ import annotations

import asyncio
import io
import json
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from rich.console import Console

from cli.commands.top import LEAST_STREAMS, MOST_MEMBERS, Seen, frame, show_live
from tests.unit.cli.commands.test_show import ANSWERS, MEMBERS, STREAMS
from tests.unit.cli.fake_services import InMemoryControl, baton, client_of

TOTALS = {"streams": 3, "lag": 6, "open_sessions": 3, "sessions": 17}
SEEN = Seen(MEMBERS, STREAMS, TOTALS, 120)
DETAIL: dict[str, Any] = {
    **STREAMS[1],
    "group": "default",
    "topic": "fragments.0001",
    "counts": {"fragments": 40},
    "node": {"epoch": 3, "owner": "consumer-0"},
    "last_handover": None,
    "owners": [
        {
            "owner": "consumer-0",
            "epoch": 3,
            "since": 807256800000,
            "why": "drain",
            "warm": True,
            "pause_ms": 31.5,
        },
        {"owner": "[bold]", "epoch": 2, "since": 0, "why": "", "warm": None, "pause_ms": None},
    ],
}


def drawn(seen: Seen, height: int = 40, **more: Any) -> list[str]:
    """The frame's lines in a terminal of this height."""
    console = Console(file=io.StringIO(), width=more.pop("width", 120), highlight=False)
    console.print(frame(seen, "default", height, console.width, **more))
    assert isinstance(console.file, io.StringIO)
    return [line.strip() for line in console.file.getvalue().splitlines() if line.strip()]


def test_a_frame_has_sums_members_streams_and_reasons() -> None:
    """Sums first; what is not known is `-`; below, why a stream fails."""
    lines = drawn(SEEN, now=datetime(2026, 1, 1, 12, 0, 1, tzinfo=UTC))

    assert lines[0] == (
        "12:00:01Z  default: 3 streams, 2 members, lag 6, - fragments/s, 3 open sessions, 17 delivered,"
        " 120 ms old"
    )
    owners = [line.split() for line in lines if line.startswith("consumer-")]
    assert [(line[0], line[-1]) for line in owners] == [("consumer-0", "4,000"), ("consumer-1", "-")]
    rows = [line.split() for line in lines if line.split()[0].isdecimal()]
    assert rows[2] == ["2", "-", "unowned", "OK", "2", "-", "-", "1"]
    assert lines[-1] == "stream 1 is running (failed 3 times in a row): no answer"


@pytest.mark.parametrize("height", [5, 24, 60])
@pytest.mark.parametrize("count", [0, 3, 400])
def test_a_frame_fits_the_terminal(height: int, count: int) -> None:
    """Except that some streams are always shown; members beyond a limit are counted."""
    members = [{**MEMBERS[1], "id": f"m-{n}"} for n in range(count)]
    streams = [{**STREAMS[0], "stream": n} for n in range(400)]

    lines = drawn(Seen(members, streams, TOTALS, 0), height)

    shown = [line for line in lines if line.split()[0].isdecimal()]
    assert len(shown) >= LEAST_STREAMS
    assert len(lines) <= height or len(shown) == LEAST_STREAMS
    assert any(f"and {count - MOST_MEMBERS} more members" in line for line in lines) is (count > MOST_MEMBERS)


@pytest.mark.parametrize("width", range(40, 100, 7))
def test_a_narrow_frame_cuts_no_number(width: int) -> None:
    """It leaves columns out as a whole, and names them; the lag stays longest."""
    streams = [{**STREAMS[0], "stream": n, "lag": 123_456 + n, "rate": 1234.5} for n in range(8)]
    lines = drawn(Seen(MEMBERS, streams, TOTALS, 0), width=width)
    text = " ".join(" ".join(lines).split())

    assert "…" not in text
    assert all(f"{one['lag']:,}" in text for one in streams)
    named = text.partition("too narrow for: ")[2].split(", ")
    assert ("1,234.50" in text) is ("RATE" not in named)
    assert not {"STREAM", "LAG", "STATUS"} & {*named}


def test_an_outage_is_shown_above_the_last_answer() -> None:
    """Old numbers must not pass for new ones."""
    lines = drawn(SEEN, complaint="control does not answer")

    assert lines[1] == "control does not answer; this is the last answer"


async def test_top_is_drawn_again_and_outlives_an_outage() -> None:
    """On a screen of its own; the last frame stays while control is away."""
    frames: list[str] = []
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=30, highlight=False)
    control = InMemoryControl({**ANSWERS, "/streams": {**ANSWERS["/streams"], "stale_ms": 5}})
    answers = iter([httpx.Response(503, json={"detail": "control is busy"}), None])

    async def answer(request: httpx.Request) -> httpx.Response:
        return (next(answers, None) if request.url.path == "/members" else None) or await control.answer(
            request
        )

    async def pause() -> None:
        assert isinstance(console.file, io.StringIO)
        frames.append(console.file.getvalue())
        console.file.truncate(0)
        if len(frames) == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await show_live(console, client_of(answer, 0.0), "default", SEEN, pause)

    assert ["3 streams, 2 members" in one for one in frames] == [True] * 3
    assert ["this is the last answer" in one for one in frames] == [False, True, False]


def test_without_a_terminal_top_prints_one_frame() -> None:
    """Control is asked for the streams with the most lag: they may be on any page."""
    control = InMemoryControl({**ANSWERS, "/streams": {**ANSWERS["/streams"], "stale_ms": 5}})

    shown = baton(control.answer, "top")

    assert shown.exit_code == 0
    assert "default: 3 streams, 2 members" in shown.stdout
    assert [query for path, query in control.queries if path == "/streams"] == [
        {"group": "default", "sort": "-lag", "limit": "60"}
    ]


def test_a_stream_is_shown_in_full() -> None:
    """Every field that is a value, the owners so far, and why it fails; texts are no markup."""
    control = InMemoryControl({"/streams/1": DETAIL})

    shown = baton(control.answer, "stream", "1")
    machine = baton(control.answer, "stream", "1", "-o", "json")

    assert json.loads(machine.stdout) == DETAIL
    words = [line.split() for line in shown.stdout.splitlines()]
    assert ["safe", "offset", "30"] in words
    assert ["counts", "fragments", "40"] in words
    assert ["consumer-0", "3", "1995-08-01", "06:00:00Z", "warm", "31.50", "drain"] in words
    assert any(line[:2] == ["[bold]", "2"] for line in words)
    assert "stream 1 is running (failed 3 times in a row): no answer" in shown.stdout
