"""Which token the command line shows to control, and what it says if that does not do."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from cli.http.client import connect
from cli.http.control import connect_to_control
from cli.http.requests import NotAllowed
from cli.stack.processes.identity import Identity
from cli.stack.processes.state import StackState, lock_home, save_state
from cli.terminal.exit_codes import ExitCode
from cli.terminal.local_stack import token_for
from services.control.http.api.access.access import Access
from services.control.http.api.access.tokens import Tokens
from shared.errors import InvalidInput
from tests.unit.cli.fake_services import served
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.sources import small_baton

STACK = "http://127.0.0.1:8100"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """That of a shell which means a running stack; control of that stack has tokens."""
    home = tmp_path / ".baton"
    (tmp_path / "own").write_text("of-the-stack\n")
    with lock_home(home):
        state = StackState(
            supervisor=Identity(os.getpid(), "now"),
            control=STACK,
            producer="http://127.0.0.1:8101",
            kafka="127.0.0.1:9192",
            token_file=str(tmp_path / "own"),
        )
        save_state(home, state)
    return {"BATON_HOME": str(home)}


def test_the_environment_wins_over_the_local_stack(environment: dict[str, str], tmp_path: Path) -> None:
    """BATON_TOKEN wins over BATON_TOKEN_FILE; of a file with two lines the first is shown."""
    file = tmp_path / "token"
    file.write_text(" new \nold\n")
    in_file = environment | {"BATON_TOKEN_FILE": str(file)}

    assert token_for(STACK, environment) == token_for(f"{STACK}/", environment) == "of-the-stack"
    assert token_for(STACK, in_file) == token_for("http://elsewhere", in_file) == "new"
    assert token_for(STACK, in_file | {"BATON_TOKEN": "given"}) == "given"


def test_no_other_control_gets_the_local_stacks_token(environment: dict[str, str]) -> None:
    """Nor does its producer."""
    for url in (
        "http://elsewhere",
        "http://127.0.0.1:8101",
        "http://127.0.0.1:81000",
        "https://127.0.0.1:8100",
    ):
        assert token_for(url, environment) == ""


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", "sch\u00fcssel".encode(), b"a,b"])
def test_an_unusable_file_is_a_fault(content: bytes | None, tmp_path: Path) -> None:
    """Without it control would only say that a token is missing."""
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(InvalidInput, match=f"BATON_TOKEN_FILE={file}: "):
        token_for(STACK, {"BATON_TOKEN_FILE": str(file)})
    with pytest.raises(InvalidInput, match="BATON_TOKEN must be visible ASCII"):
        token_for(STACK, {"BATON_TOKEN": "sch\u00fcssel"})


async def test_control_gets_the_token_and_the_producer_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer may belong to somebody else, and its write key is another secret."""
    monkeypatch.setenv("BATON_TOKEN", "s3cret")
    sent: list[str | None] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers.get("authorization"))
        return httpx.Response(200, json={})

    with served(answer) as url:
        async with connect_to_control(url) as control, connect(url, bearer="key") as producer:
            await control.get("/streams")
            await producer.get("/livez")

    assert sent == ["Bearer s3cret", "Bearer key"]


def test_every_command_that_asks_control_shows_the_token() -> None:
    """`connect` alone shows nothing: a call of it says which write key goes to a producer."""
    bare = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "cli").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "connect"
        and "bearer" not in {keyword.arg for keyword in node.keywords}
    ]

    assert bare == []


async def test_a_refusal_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of control, from the real one."""
    file = tmp_path / "tokens"
    file.write_text("0123456789abcdef view name=ann\n")
    access = Access(Tokens(file))
    await access.step()
    app = await app_of(small_baton(), InMemoryRunner(), access=access)

    async def answer(request: httpx.Request) -> httpx.Response:
        headers = {"authorization": shown} if (shown := request.headers.get("authorization")) else {}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as client:
            refusal = await client.request(request.method, request.url.path, headers=headers)
        return httpx.Response(refusal.status_code, content=refusal.content)

    said = []
    with served(answer) as url:
        for token in ("", "wrong-0123456789", "0123456789abcdef"):
            monkeypatch.setenv("BATON_TOKEN", token)
            async with connect_to_control(url) as control:
                with pytest.raises(NotAllowed) as refused:
                    await control.operate({"kind": "rebalance"})
            said.append(refused.value.detail)

    assert ["BATON_TOKEN_FILE" in said[0], "in force" in said[1], "role `operate`" in said[2]] == [True] * 3


def test_a_command_ends_with_one_sentence(tmp_path: Path) -> None:
    """Also before it has asked anybody."""
    environment = {"PATH": "/bin:/usr/bin", "BATON_TOKEN_FILE": str(tmp_path / "none")}
    argv = [sys.executable, "-m", "cli.main", "streams"]
    answer = subprocess.run(
        argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60
    )

    assert answer.returncode == ExitCode.USAGE
    assert answer.stderr == f"baton: BATON_TOKEN_FILE={tmp_path / 'none'}: No such file or directory\n"
