"""`baton queue` against the real service over Kafka in memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from cli.commands import queue_work
from cli.commands.queue_work import Work, work_on
from cli.main import cli
from cli.terminal.exit_codes import ExitCode
from services.queue.app import create_face
from services.queue.http.exchange import MAX_REQUEST_BYTES
from services.queue.worker.queues import Queues
from shared.errors import Unavailable
from shared.server.listener import http_server
from shared.service.inflight import Inflight
from tests.fakes.queues import InMemoryQueueStore
from tests.servers import free_port
from tests.unit.cli.fake_services import served


@pytest.fixture
def url() -> Iterator[str]:
    """The service, in a thread."""
    port, started = free_port(), threading.Event()
    ends: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        queues, stop = Queues(InMemoryQueueStore()), asyncio.Event()
        face = create_face(queues, Inflight(4 * MAX_REQUEST_BYTES), stop)
        looking = asyncio.create_task(queues.run())
        async with http_server(face, "127.0.0.1", port):
            ends.append((asyncio.get_running_loop(), stop))
            started.set()
            await stop.wait()
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(30)
    yield f"http://127.0.0.1:{port}"
    loop, stop = ends[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)


def baton(url: str, *arguments: str, code: int = 0, given: str = "") -> Any:
    """The JSON that `baton queue` prints, None if nothing; it must end with this code."""
    answer = CliRunner().invoke(cli, ["queue", *arguments], env={"BATON_QUEUE_URL": url}, input=given)
    assert (0 if answer.exception is None else 1) == code, answer.output
    return json.loads(answer.stdout) if answer.stdout.strip() else None


def test_an_items_life_on_the_command_line(url: str) -> None:
    """Every command, with the answers of the service."""
    created = baton(url, "create", "mail", "--lease", "60", "--max-attempts", "3")
    put = baton(url, "put", "mail", '{"to":"ann"}', "--id", "a")
    lines = baton(url, "put", "mail", given='{"data":1}\n{"data":2}\n')
    found = baton(url, "lease", "mail", "-n", "3")["items"]
    a, b, c = (item["receipt"] for item in found)
    settled = [
        baton(url, "ack", "mail", a),
        baton(url, "extend", "mail", b, "--lease", "90"),
        baton(url, "release", "mail", b, "--delay", "600"),
        baton(url, "reject", "mail", c, "--why", "no"),
    ]
    listed = baton(url, "list", "-o", "json")["queues"][0]
    redriven = baton(url, "redrive", "mail")
    sought = baton(url, "seek", "mail", "0=0", "--dry-run")
    purged = baton(url, "purge", "mail")
    baton(url, "delete", "mail")

    assert created["settings"]["lease_s"] == 60
    assert (put["accepted"], lines["accepted"]) == (1, 2)
    assert [item["data"] for item in found] == [{"to": "ann"}, 1, 2]
    assert settled == [{"done": 1, "stale": []}] * 4
    assert (listed["queue"], listed["waiting"], listed["dead"]) == ("mail", 1, 1)
    assert (redriven, sought, purged) == ({"ready": 1}, {"ready": 4}, {"ready": 0})
    baton(url, "show", "mail", code=1)


def test_work_acks_what_succeeds_and_gives_back_what_fails(url: str, tmp_path: Path) -> None:
    """The item is the program's standard input; a failure comes back later, with its attempts counted."""
    seen = tmp_path / "seen"
    program = (
        "import os, sys; data = sys.stdin.read(); "
        f"print(data, os.environ['QUEUE_ITEM_ATTEMPT'], file=open({str(seen)!r}, 'a')); "
        "sys.exit(data == '\"bad\"')"
    )
    baton(url, "create", "q")
    baton(url, "put", "q", '{"n":1}', '"bad"', "[2]")

    answer = CliRunner().invoke(
        cli,
        ["queue", "work", "q", "--until-empty", "--", sys.executable, "-c", program],
        env={"BATON_QUEUE_URL": url},
    )
    shown = baton(url, "show", "q")

    assert answer.exit_code == 0, answer.output
    assert seen.read_text() == '{"n":1} 1\n"bad" 1\n[2] 1\n'
    assert "exit code 1, again in 1 s" in answer.stderr
    assert shown["ready"] + shown["waiting"] == 1


def test_the_lease_is_extended_while_the_program_runs(url: str) -> None:
    """Three times as long as the lease; meanwhile nobody else gets the item, and it has one attempt."""
    baton(url, "create", "q", "--max-attempts", "1")
    baton(url, "put", "q", "1")
    others: list[Any] = []
    arguments = ["queue", "work", "q", "--lease", "1", "--until-empty", "--url", url, "--", "sleep", "3"]
    working = threading.Thread(target=CliRunner().invoke, args=(cli, arguments))
    working.start()
    with httpx.Client(base_url=f"{url}/queues", timeout=30) as http:
        while http.get("/q").json()["ready"]:
            assert working.is_alive()
        while (shown := http.get("/q").json())["leased"]:
            others += http.post("/q/lease", json={"max": 10, "wait_s": 0.5}).json()["items"]
    working.join(30)
    text = httpx.get(f"{url}/metrics").text

    assert others == []
    assert (shown["ready"], shown["waiting"], shown["dead"]) == (0, 0, 0)
    assert 'baton_queue_leases_total{queue="q"} 1.0' in text
    assert 'baton_queue_acks_total{queue="q"} 1.0' in text
    assert 'baton_queue_expired_total{queue="q"} 0.0' in text


def test_without_the_program_nothing_is_leased(url: str) -> None:
    """A name that was misspelt costs no item an attempt."""
    baton(url, "create", "q")
    baton(url, "put", "q", "1")

    baton(url, "work", "q", "--until-empty", "--", "no-such-program", code=1)
    shown = httpx.get(f"{url}/metrics").text

    assert 'baton_queue_leases_total{queue="q"} 0.0' in shown


def test_a_program_that_cannot_start_costs_no_attempt(url: str, tmp_path: Path) -> None:
    """The item comes back at once, as if nobody had seen it, and the command ends."""
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter")
    program.chmod(0o755)
    baton(url, "create", "q", "--max-attempts", "1")
    baton(url, "put", "q", "1")

    baton(url, "work", "q", "--until-empty", "--", str(program), code=1)
    (item,) = baton(url, "lease", "q", "--wait", "20")["items"]

    assert (item["data"], item["attempt"]) == (1, 1)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_signals_end_the_program_and_give_its_item_back(
    url: str, tmp_path: Path, how: signal.Signals
) -> None:
    """An orderly stop of a worker costs no lease: the next one has the item at once."""
    if signal.getsignal(how) == signal.SIG_IGN:
        pytest.skip("whoever runs this ignores the signal, and so would the command")
    started = tmp_path / "started"
    os.mkfifo(started)
    baton(url, "create", "q")
    baton(url, "put", "q", "1")
    arguments = ["queue", "work", "q", "--lease", "600", "--url", url, "--"]
    with subprocess.Popen(
        [sys.executable, "-m", "cli.main", *arguments, "sh", "-c", f"echo $$ > {started}; exec sleep 600"]
    ) as working:
        child = int(started.read_text())
        working.send_signal(how)
        code = working.wait(60)
    (item,) = baton(url, "lease", "q", "--wait", "20")["items"]

    assert code == ExitCode.INTERRUPTED
    assert item["attempt"] == 2
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


class AwayClient:
    """A service that gives one item, and is away when that is to be acked, until it has been extended."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def call(self, method: str, path: str, body: Any) -> Any:
        what = path.rpartition("/")[2]
        self.asked.append(what)
        if what == "lease":
            item = {"receipt": "0/0/1", "id": None, "attempt": 1, "data": 1}
            return {"items": [item] if self.asked.count("lease") == 1 else []}
        if what == "ack" and "extend" not in self.asked:
            raise Unavailable("away")
        return {}


async def test_an_ack_is_tried_again_however_long_the_service_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The work is done; meanwhile the lease is extended, and then the next item has its turn."""
    monkeypatch.setattr(queue_work, "AGAIN_S", 0.01)
    client: Any = AwayClient()

    await work_on(client, Work(queue="q", command=["true"], lease_s=0.3, until_empty=True))

    assert client.asked.count("ack") > 1
    assert client.asked[0] == client.asked[-1] == "lease"
    assert "release" not in client.asked


@pytest.mark.parametrize(
    "arguments",
    [("show", "missing"), ("put", "q", "no json"), ("put", "q", "1", "2", "--id", "a"), ("seek", "q", "0=x")],
)
def test_a_mistake_is_a_sentence(url: str, arguments: tuple[str, ...]) -> None:
    """And an exit code other than 0."""
    baton(url, "create", "q")

    baton(url, *arguments, code=1)


@pytest.mark.parametrize("act", ["purge", "redrive"])
def test_with_a_reason_control_does_it(act: str) -> None:
    """Under a key, so that the request can be repeated; the queue service is not asked."""
    asked: list[httpx.Request] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"queue": "mail", "act": act, "items": 3, "ready": 0})

    nobody = f"http://127.0.0.1:{free_port()}"
    with served(answer) as control:
        done = baton(nobody, act, "mail", "--reason", "a test", "--dry-run", "--control", control)

    assert done["items"] == 3
    assert [(one.method, one.url.path) for one in asked] == [("POST", f"/queues/mail/{act}")]
    assert json.loads(asked[0].content) == {"dry_run": True, "reason": "a test"}
    assert "idempotency-key" in asked[0].headers
