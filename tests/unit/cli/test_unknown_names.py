"""Unknown groups, streams, members and reasons: one sentence and one exit code each, in every command."""

from __future__ import annotations

import ast
import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from cli.main import cli as baton_cli
from shared.errors import NotFound
from shared.model.rejects import REASONS
from tests.unit.cli.fake_services import baton
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.sources import small_baton

ROOT = Path(__file__).parents[3]
GROUP = "there is no group 'nope'"
STREAM = "there is no stream 99; there are 0 … "
MEMBER = "there is no member 'nope' in group 'default'"


@pytest.fixture
def invoke() -> Callable[..., Result]:
    """Runs a command against control's real HTTP interface over a small Baton."""
    app = asyncio.run(app_of(small_baton(), InMemoryRunner()))
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control")

    async def answer(request: httpx.Request) -> httpx.Response:
        headers = {
            name: request.headers[name] for name in ("accept", "content-type") if name in request.headers
        }
        path = request.url.raw_path.decode()
        return await http.request(request.method, path, content=request.content, headers=headers)

    return lambda *arguments: baton(answer, *arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        *(
            ([*command.split(), "--group", "nope"], GROUP)
            for command in (
                *("streams", "members", "plan", "lag", "events", "events -f", "run lake"),
                *("move 0 --to m1", "drain m1", "rebalance"),
            )
        ),
        *((command.split(), STREAM) for command in ("move 99 --to m1", "events --stream 99")),
        *(
            (command.split(), MEMBER)
            for command in ("move 0 --to nope", "drain nope", "events --member nope --group default")
        ),
        (["events", "--member", "nope"], "there is no member 'nope'"),
    ],
)
def test_an_unknown_name_is_refused_alike_everywhere(
    invoke: Callable[..., Result], arguments: list[str], sentence: str
) -> None:
    """The command prints the sentence and exits with 1; an empty table would look like an answer."""
    error = invoke(*arguments).exception

    assert isinstance(error, NotFound)
    assert error.detail.startswith(sentence)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        *(
            ([*command.split(), "--group", group], f"there is no group {group!r}")
            for command in ("sessions", "sessions -f", "kafka forget 0", "kafka forget 0 --yes")
            for group in ("nope", "No pe!")
        ),
        *(
            (command.split(), STREAM)
            for command in ("kafka forget 99", "kafka forget 99 --checkpoints --yes")
        ),
    ],
)
def test_commands_that_need_no_control_refuse_names_alike(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before they read, ask or delete anything; the topics of a group say that it exists."""
    topics = {"fragments.0000": 1, "checkpoints.default": 1, "sessions": 1}

    async def list_all(_: str) -> list[str]:
        return list(topics)

    async def count_partitions(_: str, topic: str) -> int:
        return topics[topic]

    monkeypatch.setattr("cli.kafka.known_names.connected", contextlib.nullcontext)
    monkeypatch.setattr("cli.kafka.known_names.list_all", list_all)
    monkeypatch.setattr("cli.kafka.known_names.count_partitions", count_partitions)

    result = CliRunner().invoke(baton_cli, [*arguments, "--kafka", "127.0.0.1:9"])

    assert isinstance(result.exception, NotFound)
    assert result.exception.detail.startswith(sentence)
    assert result.output == ""


def test_events_of_a_member_that_has_left_are_shown(invoke: Callable[..., Result]) -> None:
    """The history of a name is an answer, whether or not it still exists."""
    result = invoke("events", "--member", "m2", "--stream", "0")

    assert result.exit_code == 0
    assert "handover" in result.stdout


@pytest.mark.parametrize("command", [["rejected"], ["rejected", "replay"], ["rejected", "dismiss"]])
def test_an_unknown_reason_is_refused_with_the_list(command: list[str]) -> None:
    """Before Kafka is contacted: a replay would commit the place up to which it had found nothing."""
    result = CliRunner().invoke(baton_cli, [*command, "--reason", "tim", "--kafka", "127.0.0.1:9"])

    assert result.exit_code == 2
    assert f"'tim' is not a reason; use one of {', '.join(REASONS)}" in " ".join(result.output.split())


def test_every_reason_is_in_the_list() -> None:
    """Each word with which the code rejects a fragment, and none that it never uses."""
    used = set()
    for path in (*(ROOT / "shared/model").glob("*.py"), *(ROOT / "services/producer").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "FragmentRejected" and node.args:
                used |= words_in(node.args[0])
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and node.value.elts:
                used |= words_in(node.value.elts[0])

    # a malformed marker is no fragment: its whole request is refused
    assert used - {"marker"} == set(REASONS) - {"unreadable", "unknown"}


def words_in(node: ast.expr) -> set[str]:
    """The word, if it is a constant one."""
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()
