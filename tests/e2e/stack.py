"""The local stack on the test session's Kafka and ZooKeeper, and the command line as a user runs it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cli.http.client import connect
from cli.stack.local.stack import LocalStack
from cli.stack.options import StackOptions
from tests.e2e.fleet import QUICK
from tests.e2e.service import CHECKOUT
from tests.servers import free_port_offset
from tests.waiting import DEADLINE_S, until

CONSUMERS = 3


def stack_in(home: Path, kafka: str, zookeeper: str, namespace: str, streams: int) -> LocalStack:
    """A stack, not yet started, on servers that already run."""
    return LocalStack(
        StackOptions(
            home=home,
            port_offset=free_port_offset(),
            consumers=CONSUMERS,
            streams=streams,
            namespace=namespace,
            kafka=kafka,
            zookeeper=zookeeper,
            environment=QUICK,
        )
    )


async def baton(*arguments: str) -> tuple[int, str, str]:
    """Runs the command line as a user does: exit code, standard output, standard error."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=CHECKOUT,
    )
    with _ended(process):
        async with asyncio.timeout(4 * DEADLINE_S):
            out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def baton_json(stack: LocalStack, *arguments: str) -> Any:
    """The JSON that a command of control prints with `-o json`; its exit code must be 0."""
    code, out, err = await baton(*arguments, "--url", stack.control_url, "-o", "json")
    assert code == 0, err
    return json.loads(out)


async def settled(stack: LocalStack) -> dict[str, Any]:
    """`GET /streams` once every stream runs, with no lag and no open session."""
    answer: dict[str, Any] = {}

    async def is_settled() -> bool:
        nonlocal answer
        answer = await control.pages("/streams", "streams", "stream")
        running = all(row["state"] == "running" for row in answer["streams"])
        return running and answer["totals"]["lag"] == 0 and answer["totals"]["open_sessions"] == 0

    async with connect(stack.control_url, patience_s=DEADLINE_S) as control:
        await until(is_settled, lambda: f"not settled: {answer.get('totals')}, {answer.get('streams')}")
    return answer


def left_running(home: Path) -> list[int]:
    """The processes whose command line or environment names the folder: leftovers of a stack."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            known = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            if str(home).encode() in known:
                found.append(int(entry.name))
    return found


@contextlib.contextmanager
def _ended(process: asyncio.subprocess.Process) -> Iterator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
