"""Ctrl-C: every long command says what it did, what goes on running, and exits with 130."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import pytest
from click.testing import CliRunner

import cli.demo.command
import cli.demo.script
import cli.rejects.command
import cli.stack.commands.up
from cli.importing.command import interrupted_text
from cli.importing.options import ImportOptions, Outcome
from cli.importing.parsing.rows import Fields
from cli.importing.tally import Tally
from cli.main import cli as baton_cli
from cli.main import main
from cli.rejects.replay import Replayed
from cli.terminal.interrupts import signal_event
from tests.unit.cli.fake_services import InMemoryControl, InMemoryProducer, baton

OPERATION = {
    "id": "o7",
    "kind": "drain",
    "member": "m1",
    "state": "running",
    "done": 1,
    "total": 3,
    "why": "",
}
RUN = {"id": "r7", "job": "lake", "state": "running", "progress": {"tasks": 8, "completed": 3}}


def press_ctrl_c() -> None:
    """Sends this process the signal that Ctrl-C in a terminal sends."""
    os.kill(os.getpid(), signal.SIGINT)


class InterruptedControl(InMemoryControl):
    """Answers like control, but presses Ctrl-C before it answers the request at `place`."""

    def __init__(self, place: str) -> None:
        super().__init__({"/events": {"events": []}, "/runs/r7": RUN, "/operations/o7": OPERATION})
        self._place = place

    async def answer(self, request: httpx.Request) -> httpx.Response:
        """The response to a request."""
        if f"{request.method} {request.url.path}" == self._place:
            press_ctrl_c()
        if request.method == "POST":
            return httpx.Response(202, json=RUN if "/jobs/" in request.url.path else OPERATION)
        if request.url.path in ("/runs/r7", "/operations/o7"):
            return httpx.Response(200, json=self.answers[request.url.path])
        if "text/event-stream" in request.headers.get("accept", ""):
            return httpx.Response(200, content=b'id: 1\ndata: {"id": 1, "kind": "join"}\n\n')
        return await super().answer(request)


@pytest.mark.parametrize(
    ("arguments", "place", "sentence"),
    [
        (
            ("run", "lake", "--wait"),
            "GET /runs/r7",
            "run r7 of lake continues; `baton runs` shows it, and `baton cancel r7` ends it",
        ),
        (
            ("run", "lake"),
            "POST /jobs/lake/runs",
            "a run of lake may have started; `baton runs` lists the runs, and `baton cancel` ends one",
        ),
        (
            ("drain", "m1", "--wait"),
            "GET /operations/o7",
            "operation o7 (drain m1) continues; `baton operations` shows it. `baton undrain` undoes it while "
            "the member drains, and then its restart",
        ),
        (
            ("move", "3", "--to", "m1"),
            "POST /operations",
            "the operation (move 3 --to m1) may have started; `baton operations` lists the operations. "
            "`baton unpin` undoes it",
        ),
        (("drain", "m1", "--dry-run"), "POST /operations", "nothing was started"),
        (("events", "-f"), "GET /events", "stopped after 0 events"),
    ],
)
def test_an_interrupted_client_command_says_what_goes_on(
    arguments: tuple[str, ...], place: str, sentence: str
) -> None:
    """Control carries on, so the command names what runs there and how to end it."""
    result = baton(InterruptedControl(place).answer, *arguments)

    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == f"baton: interrupted: {sentence}"
    assert "Aborted" not in result.output


def test_an_interrupted_import_says_what_was_acknowledged(tmp_path: Path) -> None:
    """The second request never ends; of the log of 100 lines the first 50 are in Kafka."""
    producer = InMemoryProducer(1)

    async def answer(request: httpx.Request) -> httpx.Response:
        if len(producer.requests) == 1:
            press_ctrl_c()
        return await producer.answer(request)

    log = tmp_path / "log.ndjson"
    log.write_text("".join(f'{{"key": "k", "time": {1000 + n}}}\n' for n in range(100)))
    fields = ("--format", "ndjson", "--key", "key", "--time", "time", "--no-marker")

    result = baton(answer, "import", str(log), *fields, "--batch", "50")

    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == (
        "baton: interrupted: 100 lines were read, and 50 fragments acknowledged, which stay. "
        "The same command sends the rest"
    )


@pytest.mark.parametrize(
    ("changes", "delivered", "end"),
    [
        ({"dry_run": True}, None, "5 lines were read, and nothing was sent"),
        ({"file": "-"}, None, "Standard input cannot be continued: import what is left of it by itself"),
        ({"again": True}, None, "The same command without --again sends the rest"),
        ({}, False, "All was sent, and only the wait has ended. The same command waits on"),
        ({"again": True}, False, "The same command without --again waits on"),
        ({"file": "-"}, False, "only the wait has ended. `baton streams` shows what is left to read"),
    ],
)
def test_what_an_interrupted_import_advises_is_true(
    changes: dict[str, Any], delivered: bool | None, end: str
) -> None:
    """Following it neither sends a line twice nor leaves one out."""
    options = ImportOptions(
        file="log", form="ndjson", fields=Fields(key="k", time="t"), name="log", url="", control=""
    )
    options = replace(options, **changes)
    so_far = Outcome(tally=Tally(lines=5), delivered=delivered)

    assert interrupted_text(options, so_far).endswith(end)


class InterruptedStack:
    """A local stack during whose start Ctrl-C is pressed; `stopped` says whether it stopped in order."""

    stopped = False

    def __init__(self, *_: Any) -> None: ...

    async def __aenter__(self) -> Self:
        press_ctrl_c()
        try:
            await asyncio.Event().wait()
        finally:
            InterruptedStack.stopped = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@pytest.mark.parametrize("command", ["up", "demo"])
def test_an_interrupted_stack_is_stopped_and_says_so(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` keeps its data, and a demo has proven nothing."""
    monkeypatch.setattr(InterruptedStack, "stopped", False)
    for module in (cli.stack.commands.up, cli.demo.script):
        monkeypatch.setattr(module, "LocalStack", InterruptedStack)
    for module in (cli.stack.commands.up, cli.demo.command):
        monkeypatch.setattr(module, "prepare", lambda options: None)
    monkeypatch.setattr(cli.stack.commands.up, "check_ports", lambda *_: None)
    home = tmp_path / "home"

    result = CliRunner().invoke(baton_cli, [command, "--home", str(home)])

    assert result.exit_code == 130
    assert InterruptedStack.stopped
    kept = f"its data stay in {home}, and `baton up --home {home}` continues with them"
    sentence = {
        "up": f"the stack has stopped; {kept}",
        "demo": "nothing was proven, and nothing is left running",
    }
    assert result.stderr.splitlines()[-1] == f"baton: interrupted: {sentence[command]}"


@pytest.mark.parametrize("command", ["up", "demo"])
def test_an_interrupted_download_leaves_nothing_running(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first process starts, Ctrl-C takes effect at once."""
    for module in (cli.stack.commands.up, cli.demo.command):
        monkeypatch.setattr(module, "prepare", lambda options: press_ctrl_c())

    result = CliRunner().invoke(baton_cli, [command, "--home", str(tmp_path / "home")])

    assert result.exit_code == 130
    assert "nothing was started" in result.stderr or "nothing is left running" in result.stderr


def test_an_interrupted_replay_prints_its_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was acknowledged is committed, so the same command continues after it."""

    async def replay(replayed: Replayed, *_: Any, **__: Any) -> None:
        replayed.tally.accepted = 3
        press_ctrl_c()

    monkeypatch.setattr(cli.rejects.command, "_replay", replay)

    result = CliRunner().invoke(baton_cli, ["rejected", "replay", "--reason", "time"])

    assert result.exit_code == 130
    assert "3 with reason 'time' were accepted" in result.stdout
    assert result.stderr.endswith("the same command continues after the last acknowledged fragment\n")


def test_every_other_command_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A short command has nothing to sum up."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cli.commands.show.get_list", interrupted)
    monkeypatch.setattr("sys.argv", ["baton", "members"])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 130
    assert capsys.readouterr().err.strip() == "baton: interrupted"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_command_can_wait_for_the_signal_that_ends_it(number: signal.Signals) -> None:
    """Without an interruption: what comes after the wait is the command's ordinary end."""
    loop = asyncio.get_running_loop()
    try:
        received = signal_event()
        assert not received.is_set()

        signal.raise_signal(number)

        async with asyncio.timeout(10):
            await received.wait()
    finally:
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(one)
