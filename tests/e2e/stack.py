"""The local stack on the test session's Kafka and ZooKeeper, and an import that a test feeds step by step.

`Importing` is a real `baton import -`. The test writes its standard input part by part, so whatever the test
does between two parts happens during the import, however fast the machine is.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cli.http.client import connect
from cli.stack.local import LocalStack
from cli.stack.options import StackOptions
from tests.e2e.fleet import QUICK
from tests.e2e.service import CHECKOUT, DEADLINE_S, poll
from tests.servers import free_port_offset

CONSUMERS = 3

Stacks = Callable[[int], LocalStack]
"""Makes a stack with that many streams, in the test's own namespace."""


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


class Importing:
    """A running `baton import - --wait -o json`; `feed` writes lines to it, `finish` gives its summary."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def feed(self, lines: Sequence[bytes]) -> None:
        """Writes lines; returns once the importer has read all but what a pipe holds."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"".join(line + b"\n" for line in lines))
        await self._process.stdin.drain()

    async def finish(self) -> dict[str, Any]:
        """Ends the log; the import's summary once every session is delivered."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(2 * DEADLINE_S):
            out, err = await self._process.communicate()
        assert self._process.returncode == 0, f"{out.decode()}\n{err.decode()}"
        summary: dict[str, Any] = json.loads(out)
        return summary


@contextlib.asynccontextmanager
async def importing(stack: LocalStack, name: str, *options: str) -> AsyncIterator[Importing]:
    """An import of a log called `name` for the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", "import", "-", "--name", name, "--wait", "-o", "json"),
        *("--url", stack.producer_url, "--control", stack.control_url, "--batch", "200", *options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=CHECKOUT,
    )
    with _ended(process):
        yield Importing(process)


async def streams_when(
    stack: LocalStack, reached: Callable[[dict[str, Any]], bool], what: str
) -> dict[str, Any]:
    """`GET /streams` once `reached` accepts it; fails at the deadline and names `what` it waited for."""
    answer: dict[str, Any] = {}

    async def is_so() -> bool:
        nonlocal answer
        answer = await control.pages("/streams", "streams", "stream")
        return reached(answer)

    async with connect(stack.control_url, patience_s=DEADLINE_S) as control:
        await poll(is_so, lambda: f"waited for {what}: {answer.get('totals')}, {answer.get('streams')}")
    return answer


async def settled(stack: LocalStack) -> dict[str, Any]:
    """`GET /streams` once every stream runs, with no lag and no open session."""

    def is_settled(answer: dict[str, Any]) -> bool:
        totals = answer["totals"]
        running = all(row["state"] == "running" for row in answer["streams"])
        return running and totals["lag"] == 0 and totals["open_sessions"] == 0

    return await streams_when(stack, is_settled, "every stream to run and be empty")


async def busiest(stack: LocalStack) -> int:
    """The live consumer with the most open sessions in memory, once one has any."""
    held: dict[int, int] = {}

    def any_holds(answer: dict[str, Any]) -> bool:
        held.clear()
        for row in answer["streams"]:
            index = int(row["owner"].removeprefix("consumer-")) if row["owner"] else -1
            if row["state"] == "running" and index in stack.consumers:
                held[index] = held.get(index, 0) + row["open_sessions"]
        return any(held.values())

    await streams_when(stack, any_holds, "a consumer to hold open sessions")
    return max(held, key=lambda index: held[index])


def log_lines(path: Path) -> list[bytes]:
    """The lines of a gzipped log, its header included."""
    return gzip.decompress(path.read_bytes()).splitlines()


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
