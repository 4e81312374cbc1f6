"""`baton events`: recent events, and following across reconnections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from click.testing import Result

from cli.commands.events import follow
from cli.http.sse import ServerSentEvent, SseParser
from shared.errors import InvalidInput, Unavailable
from tests.unit.cli.fake_services import InMemoryControl, baton, client_of, no_sleep, problem

EVENTS: list[dict[str, Any]] = [
    {"id": 3, "at": 1_000, "group": "default", "kind": "join", "member": "m2"},
    {
        "id": 5,
        "at": 61_031,
        "group": "default",
        "kind": "handover",
        "stream": 7,
        "epoch": 4,
        "from": "m1",
        "to": "m2",
        "why": "the plan",
        "sessions": 1200,
        "bytes": 2_339_220,
        "copy_ms": 7.2,
        "pause_ms": 31.4,
        "warm": True,
    },
    {"id": 4, "at": 5, "group": "default", "kind": "release", "member": "m1", "to": "m2", "stream": 23},
    {"id": 6, "at": 62_000, "group": "fraud", "kind": "claim", "member": "m9", "stream": 0, "warm": False},
    {"id": 7, "at": 0, "group": "default", "kind": "cut"},
    {
        "id": 8,
        "at": 0,
        "group": "default",
        "kind": "action",
        "stream": 3,
        "to": "m2",
        "who": "ann",
        "what": "move 3 to m2",
        "why": "hot\x1b[2J\n\u202e",
        "operation": "ab12",
    },
]


def run(control: InMemoryControl, *arguments: str) -> Result:
    return baton(control.answer, "events", *arguments)


def test_each_event_is_printed_on_one_line() -> None:
    """Time, kind, stream, members and details, which may all be absent; JSON is control's own answer.

    An action says who did what. A reason can neither move the cursor nor hide what follows it.
    """
    control = InMemoryControl({"/events": {"events": EVENTS}})

    result = run(control)

    assert json.loads(run(control, "-o", "json").stdout) == {"events": EVENTS}
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "1970-01-01 00:00:01.000Z  join                  m2",
        "1970-01-01 00:01:01.031Z  handover  stream 7    m1 → m2  the plan "
        "(epoch 4, warm, pause 31 ms, copy 7 ms, 1,200 sessions, 2.3 MB)",
        "1970-01-01 00:00:00.005Z  release   stream 23   m1 → m2",
        "1970-01-01 00:01:02.000Z  claim     stream 0    m9 of fraud  (replayed)",
        "1970-01-01 00:00:00.000Z  cut",
        "1970-01-01 00:00:00.000Z  action    stream 3    ann: move 3 to m2  "
        r"hot\x1b[2J\n\u202e (operation ab12)",
    ]


def test_filters_are_passed_to_control() -> None:
    """Only the given ones, unchanged."""
    control = InMemoryControl({"/events": {"events": EVENTS[:1]}})

    run(control, "--stream", "7", "--kind", "handover", "--member", "m1", "--group", "g", "-n", "9")
    run(control)

    filters = {"stream": "7", "kind": "handover", "member": "m1", "group": "g", "limit": "9"}
    assert control.queries == [("/events", filters), ("/events", {"limit": "50"})]


@pytest.mark.parametrize("arguments", [("--kind", "party"), ("-n", "0"), ("--stream", "-1")])
def test_invalid_filters_are_rejected(arguments: tuple[str, ...]) -> None:
    """Before a request is sent."""
    control = InMemoryControl()

    assert run(control, *arguments).exit_code == 2
    assert control.queries == []


class ScriptedEvents:
    """Control's event stream: each connection returns its part, and then fails or ends."""

    def __init__(self, *connections: list[ServerSentEvent | Exception]) -> None:
        self.connections = list(connections)
        self.last_ids: list[str] = []

    async def listen(self, last_event_id: str) -> AsyncGenerator[ServerSentEvent]:
        self.last_ids.append(last_event_id)
        if not self.connections:
            await asyncio.Event().wait()
        for step in self.connections.pop(0):
            if isinstance(step, Exception):
                raise step
            yield step


def sent(event_id: int) -> ServerSentEvent:
    """An event with this id."""
    return ServerSentEvent(str(event_id), json.dumps({"id": event_id}))


async def followed(control: ScriptedEvents, count: int, warnings: list[str]) -> list[int]:
    """The ids of the first `count` events."""
    found: list[int] = []
    async with asyncio.timeout(5):
        async for event in follow(control.listen, warnings.append, no_sleep):
            found.append(event["id"])
            if len(found) == count:
                break
    return found


async def test_following_resumes_after_every_reconnection() -> None:
    """It asks for the events after the last id received, even if that id came without an event.

    Control reports missing events as a comment, which is shown to the user.
    """
    control = ScriptedEvents(
        [sent(1), sent(2), Unavailable("reset")],
        [Unavailable("refused")],
        [Unavailable("refused")],
        [ServerSentEvent("4", comment="not all is kept")],
        [sent(7)],
    )
    warnings: list[str] = []

    assert await followed(control, 3, warnings) == [1, 2, 7]
    assert control.last_ids == ["", "2", "2", "2", "4"]
    assert warnings == ["reset; trying again", "not all is kept"]


async def test_a_rejected_request_ends_following() -> None:
    """Only Unavailable is retried."""
    with pytest.raises(InvalidInput):
        await followed(ScriptedEvents([InvalidInput("no")]), 1, [])


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_are_whole_however_the_bytes_are_split(size: int) -> None:
    """Including multi-byte characters, and characters that Python treats as line ends."""
    text = ": hello\n\nretry: 5\n\nid: 1\ndata: {„\u2028“}\n\nid: 2\r\ndata: a\r\ndata: b\r\n\r\ndata: x"
    raw, parser = text.encode(), SseParser()

    found = [event for at in range(0, len(raw), size) for event in parser.feed(raw[at : at + size])]

    assert found == [
        ServerSentEvent(comment="hello"),
        ServerSentEvent("1", "{„\u2028“}"),
        ServerSentEvent("2", "a\nb"),
    ]


async def test_listening_resumes_and_classifies_failures() -> None:
    """`Last-Event-ID` says where; 503 and a broken connection are Unavailable, 422 is not."""
    requests: list[httpx.Request] = []
    answers = [
        httpx.Response(200, content=b"retry: 1\n\nid: 5\ndata: {}\n\n"),
        problem(503, "not read yet"),
        problem(422, "no such kind"),
    ]

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        if not answers:
            raise httpx.ReadError("reset", request=request)
        return answers.pop(0)

    control = client_of(answer)
    assert [event async for event in control.listen("/events", {"stream": 1}, "4")] == [
        ServerSentEvent("5", "{}")
    ]
    for failure in (Unavailable, InvalidInput, Unavailable):
        with pytest.raises(failure):
            _ = [event async for event in control.listen("/events", {}, "")]

    assert requests[0].headers["last-event-id"] == "4"
    assert "last-event-id" not in requests[1].headers
    assert {request.headers["accept"] for request in requests} == {"text/event-stream"}
