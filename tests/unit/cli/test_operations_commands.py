"""Operations from the command line, against the real face of control over members in memory."""

from __future__ import annotations

import json

import httpx
import pytest
from click.testing import CliRunner, Result

from cli.main import cli
from shared.model.cluster import MemberNode
from tests.unit.cli.fake_services import served
from tests.unit.control.operators_world import TIMEOUT_S
from tests.unit.control.test_operations import Desk


class Control:
    """Control's face in a thread of its own: at every look at it its members give one stream on.

    `hangs`: they do not, and time flies.
    """

    def __init__(self) -> None:
        self.desk = Desk()
        self.hangs = False

    async def answer(self, request: httpx.Request) -> httpx.Response:
        """The answer to a request."""
        if request.method == "GET" and self.hangs:
            self.desk.now_s += TIMEOUT_S
        elif request.method == "GET":
            self.desk.group.act(streams=1)
        await self.desk.look()
        headers = {"content-type": "application/json"}
        return await self.desk.http.request(
            request.method, request.url.raw_path.decode(), content=request.content, headers=headers
        )

    def invoke(self, *arguments: str) -> Result:
        """The command's result."""
        with served(self.answer) as url:
            return CliRunner().invoke(cli, [*arguments, "--url", url])


@pytest.fixture
def control() -> Control:
    return Control()


def test_a_dry_run_shows_what_would_move_and_its_cost(control: Control) -> None:
    """A row per stream, then the sums; nothing is done."""
    told = control.invoke("drain", "a", "--dry-run")
    nothing = control.invoke("rebalance", "--dry-run")

    rows = [line.split() for line in told.stdout.splitlines()]
    assert ["0", "a", "b", "10", "1,000"] in rows
    assert "Would move: 3 streams, 30 open sessions, 3.0 KB." in told.stdout
    assert nothing.stdout == "Nothing would move.\n"
    assert control.desk.operations.all() == []


def test_wait_follows_a_move_to_its_end(control: Control) -> None:
    """The stream is with the member then, and the exit code 0."""
    told = control.invoke("move", "0", "--to", "b", "--wait")

    assert told.exit_code == 0
    assert "move 0 --to b, is done: 1 stream, 10 open sessions, 1.0 KB" in told.stdout
    assert control.desk.group.owner(0) == "b"


def test_wait_follows_a_drain_until_the_member_has_left(control: Control) -> None:
    """As JSON it is the operation as control tells it in the end."""
    told = control.invoke("drain", "a", "--wait", "-o", "json")

    answer = json.loads(told.stdout)
    assert (told.exit_code, answer["state"], answer["done"]) == (0, "done", 3)
    assert sorted(control.desk.group.view.members) == ["b"]


def test_an_operation_that_fails_makes_the_exit_code_1(control: Control) -> None:
    """With its reason."""
    control.hangs = True

    told = control.invoke("move", "0", "--to", "b", "--wait")

    assert told.exit_code == 1
    assert "has failed: not done within 60 s: stream 0 is still with a" in told.stderr


def test_without_wait_the_operations_id_is_told(control: Control) -> None:
    """And `baton operations` shows how far it is."""
    told = control.invoke("rebalance")
    listed = control.invoke("operations")

    (operation,) = control.desk.operations.all()
    assert f"operation {operation.id}, rebalance, is pending: 0 streams" in told.stdout
    assert [cell for cell in (operation.id, "rebalance", "done", "0/0") if cell not in listed.stdout] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("drain", "z"), "there is no member 'z'"),
        (("move", "0", "--to", "z"), "'z' is no member of group 'default' now"),
        (("move", "9", "--to", "a"), "there is no stream 9; there are 0 … 4"),
        (("rebalance", "--group", "x"), "there is no group 'x'"),
    ],
)
def test_refusals_are_told_in_controls_words(
    control: Control, arguments: tuple[str, ...], words: str
) -> None:
    """One sentence, which `baton` prints with exit code 1."""
    told = control.invoke(*arguments)

    assert words in str(told.exception)


def test_a_recipient_that_goes_meanwhile_is_told(control: Control) -> None:
    """Who waits does not wait for the time limit."""
    control.desk.group.member("c", MemberNode(address="http://c"))
    control.desk.group.act()
    control.hangs = True
    begun = control.invoke("move", "0", "--to", "c", "-o", "json")
    control.desk.group.member("c", None)

    listed = control.invoke("operations", "-o", "json")

    assert json.loads(begun.stdout)["state"] == "pending"
    assert json.loads(listed.stdout)["operations"][0]["why"].startswith("c has left")
