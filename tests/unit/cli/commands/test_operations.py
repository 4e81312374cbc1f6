"""Operations from the command line, against control's real HTTP interface with in-memory members."""

from __future__ import annotations

import json

import httpx
import pytest
from click.testing import Result

from services.control.core.causes import Cause
from services.control.live.feed.feed import EventFeed
from shared.model.events import Event, encode_event
from shared.model.names import DEFAULT_GROUP
from tests.unit.cli.fake_services import baton, forward
from tests.unit.control.desk import Desk
from tests.unit.control.operators_world import TIMEOUT_S


class Control:
    """Control's HTTP interface in a thread; with every GET its members hand over one stream.

    With `hangs` they hand over none, and the time-out passes instead; with `cancels` somebody cancels what is
    asked for.
    """

    def __init__(self) -> None:
        self.desk = Desk()
        self.hangs = self.cancels = False

    async def answer(self, request: httpx.Request) -> httpx.Response:
        """The response to a request."""
        if request.url.path == "/members":
            members = self.desk.group.view.members.items()
            return httpx.Response(200, json={"members": [{"id": n, "state": m.state} for n, m in members]})
        if request.method == "GET" and self.hangs:
            self.desk.now_s += TIMEOUT_S
        elif request.method == "GET" and self.cancels:
            for operation in self.desk.operations.all():
                await self.desk.operations.cancel(operation.id, Cause(who="ann", reason="wrong one"))
        elif request.method == "GET":
            self.desk.group.act(streams=1)
        await self.desk.look()
        return await forward(request, self.desk.http)

    def invoke(self, *arguments: str) -> Result:
        """The command's result."""
        return baton(self.answer, *arguments)


@pytest.fixture
def control() -> Control:
    return Control()


def test_a_dry_run_shows_what_would_move_and_its_cost(control: Control) -> None:
    """A row per stream, then the sums; nothing moves."""
    answer = control.invoke("drain", "a", "--dry-run")
    nothing = control.invoke("rebalance", "--dry-run")

    rows = [line.split() for line in answer.stdout.splitlines()]
    assert ["0", "a", "b", "10", "1,000"] in rows
    assert "Would move: 3 streams, 30 open sessions, 3.0 kB." in answer.stdout
    assert nothing.stdout == "Nothing would move.\n"
    assert control.desk.operations.all() == []


def test_a_dry_run_says_what_is_likely_and_what_is_not_known(control: Control) -> None:
    """Pause and length come from handovers of the last hour; a silent owner's sessions are not 0."""
    events = [
        Event(at=500 * n, group=DEFAULT_GROUP, kind="handover", stream=n, epoch=2, source="c", pause_ms=ms)
        for n, ms in enumerate((40.0, 90.0, 50.0))
    ]
    feed = EventFeed()
    feed.receive((n, encode_event(event)) for n, event in enumerate(events))
    control.desk.movements = feed.movements
    control.desk.restart()
    likely = control.invoke("drain", "a", "--dry-run")
    control.desk.group.silent.add("a")
    unknown = control.invoke("move", "0", "--to", "b", "--dry-run")

    assert "each stream pauses for 50 ms, all have moved after 1.1 s." in likely.stdout
    assert "Would move: 1 stream, open sessions not known." in unknown.stdout


def test_draining_the_last_member_warns(control: Control) -> None:
    """On standard error, before anything moves; with another member that stays there is no warning."""
    first = control.invoke("drain", "a", "--wait")

    last = control.invoke("drain", "b", "--dry-run")

    assert "is the last member" not in first.stderr
    assert "b is the last member of group 'default'" in last.stderr


def test_wait_follows_a_move_to_its_end(control: Control) -> None:
    """Then the member owns the stream, and the exit code is 0."""
    answer = control.invoke("move", "0", "--to", "b", "--wait")

    assert answer.exit_code == 0
    assert "(move 0 --to b) is done: 1 stream, 10 open sessions, 1.0 kB" in answer.stdout
    assert control.desk.group.owner(0) == "b"


def test_wait_follows_a_drain_until_the_member_has_left(control: Control) -> None:
    """The JSON is the operation as control finally reports it."""
    answer = control.invoke("drain", "a", "--wait", "-o", "json")

    operation = json.loads(answer.stdout)
    assert (answer.exit_code, operation["state"], operation["done"]) == (0, "done", 3)
    assert sorted(control.desk.group.view.members) == ["b"]


def test_an_operation_that_fails_makes_the_exit_code_1(control: Control) -> None:
    """The reason is printed."""
    control.hangs = True

    answer = control.invoke("move", "0", "--to", "b", "--wait")

    assert answer.exit_code == 1
    assert "failed: not done within 60 s: stream 0 is still with a" in answer.stderr


def test_an_operation_that_somebody_cancels_makes_the_exit_code_1(control: Control) -> None:
    """Who cancelled it, and why, is printed: a script must not take the member for drained."""
    control.cancels = True

    answer = control.invoke("drain", "a", "--wait")

    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "(drain a) was cancelled by ann: wrong one" in answer.stderr


def test_without_wait_the_id_of_the_operation_is_printed(control: Control) -> None:
    """And `baton operations` shows its progress."""
    answer = control.invoke("rebalance")
    listed = control.invoke("operations")

    (operation,) = control.desk.operations.all()
    assert f"operation {operation.id} (rebalance) is pending: 0 streams" in answer.stdout
    assert [cell for cell in (operation.id, "rebalance", "done", "0/0") if cell not in listed.stdout] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("drain", "z"), "there is no member 'z'"),
        (("move", "0", "--to", "z"), "there is no member 'z'"),
        (("move", "9", "--to", "a"), "there is no stream 9; there are 0 … 4"),
        (("rebalance", "--group", "x"), "there is no group 'x'"),
    ],
)
def test_rejected_operations_show_the_sentence_of_control(
    control: Control, arguments: tuple[str, ...], words: str
) -> None:
    """`baton` prints it and exits with 1."""
    answer = control.invoke(*arguments)

    assert words in str(answer.exception)


def test_a_draining_member_is_undrained(control: Control) -> None:
    """It owns its share again."""
    control.invoke("drain", "a")
    control.desk.group.act(1)

    answer = control.invoke("undrain", "a", "--wait")

    assert (answer.exit_code, control.desk.group.view.members["a"].state) == (0, "active")


def test_a_stream_is_unpinned(control: Control) -> None:
    """Other pins stay."""
    control.desk.group.pin({0: "b", 1: "b"})

    answer = control.invoke("unpin", "0", "--wait")

    assert (answer.exit_code, control.desk.group.view.pins) == (0, {1: "b"})
    assert "(unpin 0) is done" in answer.stdout


def test_a_group_is_paused_and_resumed_with_a_reason(control: Control) -> None:
    """The pause keeps it, and the list of operations shows it."""
    paused = control.invoke("pause", "--wait", "--reason", "a bad deploy")
    found = control.desk.group.view.pause
    twice = control.invoke("pause")
    resumed = control.invoke("resume", "--wait")
    listed = json.loads(control.invoke("operations", "-o", "json").stdout)["operations"]

    assert (paused.exit_code, resumed.exit_code, control.desk.group.view.pause) == (0, 0, None)
    assert found is not None
    assert found.reason == "a bad deploy"
    assert "is paused already, by anybody" in str(twice.exception)
    assert {row["kind"]: row["reason"] for row in listed} == {"pause": "a bad deploy", "resume": ""}


@pytest.mark.parametrize("reason", ["\x1b[2J\x1b]0;title\x07", "a\nb\r", "\u202eevil", "\x9b31m"])
def test_a_reason_is_only_text(control: Control, reason: str) -> None:
    """It cannot control the terminal of those who list operations, and programs get it as it was given."""
    control.invoke("pause", "--reason", reason)
    table = control.invoke("operations").stdout
    rows = json.loads(control.invoke("operations", "-o", "json").stdout)["operations"]

    assert [line for line in table.splitlines() if not line.isprintable()] == []
    assert table.count("pause") == 1
    assert [row["reason"] for row in rows] == [reason]


def test_an_operation_is_cancelled(control: Control) -> None:
    """The pins are as before; to cancel it again changes nothing."""
    started = json.loads(control.invoke("move", "0", "--to", "b", "-o", "json").stdout)

    answer = control.invoke("operations", "--cancel", started["id"], "--reason", "wrong stream")
    again = control.invoke("operations", "--cancel", started["id"])

    assert answer.stdout == f"operation {started['id']} (move 0 --to b) is cancelled\n"
    assert control.desk.group.view.pins == {}
    assert again.stdout == answer.stdout
