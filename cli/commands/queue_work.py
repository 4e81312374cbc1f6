"""Runs a command for each item of a queue, and settles the item by its exit code.

Used by queue.py. The lease is extended while the command runs; whatever ends this process, the item comes
back when its lease ends.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from cli.http.client import BatonClient
from cli.terminal.escaping import echo
from shared.errors import BatonError, Conflict, InvalidInput, Unavailable

WAIT_S = 20
MOST_DELAY_S = 3600.0
ENDING = (signal.SIGTERM, signal.SIGHUP)
AGAIN_S = 1.0
"""Between tries to settle an item, each of which is patient itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What to run, and for how long an item is leased at a time."""

    queue: str
    command: Sequence[str]
    lease_s: float
    until_empty: bool


def check_program(command: Sequence[str]) -> None:
    """Raises InvalidInput if there is no such program: then nothing should be leased."""
    if shutil.which(command[0]) is None:
        raise InvalidInput(f"{command[0]} is no program that can be started")


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP do to this task what Ctrl-C does: they cancel it. Raises KeyboardInterrupt then."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    is_main = threading.current_thread() is threading.main_thread()  # no other gets signals
    # one that is ignored was meant to be, as SIGHUP by nohup
    handled = [one for one in ENDING if is_main and signal.getsignal(one) != signal.SIG_IGN]
    came: list[signal.Signals] = []

    def end(came_now: signal.Signals) -> None:
        came.append(came_now)
        task.cancel()

    for one in handled:
        loop.add_signal_handler(one, end, one)
    try:
        yield
    except asyncio.CancelledError:
        if came:
            raise KeyboardInterrupt from None
        raise
    finally:
        for one in handled:
            loop.remove_signal_handler(one)


async def work_on(client: BatonClient, work: Work) -> None:
    """Works until it is cancelled, or until nothing is left. Raises BatonError."""
    asked = {"max": 1, "lease_s": work.lease_s, "wait_s": 0 if work.until_empty else WAIT_S}
    while True:
        answer = await client.call("POST", f"/queues/{work.queue}/lease", asked)
        if answer["items"]:
            await _run_one(client, work, answer["items"][0])
        elif work.until_empty:
            return


async def _run_one(client: BatonClient, work: Work, item: dict[str, Any]) -> None:
    receipts = {"receipts": [item["receipt"]]}
    extending = asyncio.create_task(_extend(client, work, receipts))
    try:
        try:
            code = await _run(work.command, item)
        except OSError as error:  # it has not run, and would not for the next item either
            await client.call("POST", f"/queues/{work.queue}/release", receipts | {"unseen": True})
            raise InvalidInput(f"{work.command[0]} cannot be started: {error.strerror}") from None
        except asyncio.CancelledError:
            with contextlib.suppress(BatonError):
                await client.call("POST", f"/queues/{work.queue}/release", receipts)
            raise
        if code == 0:
            await _settle(client, work, "ack", receipts)  # extended until it is acked
            return
    finally:
        extending.cancel()
    delay_s = min(2.0 ** min(item["attempt"] - 1, 30), MOST_DELAY_S)
    echo(f"item {item['receipt']}: exit code {code}, again in {delay_s:g} s", err=True)
    await _settle(client, work, "release", receipts | {"delay_s": delay_s})


async def _settle(client: BatonClient, work: Work, how: str, asked: dict[str, Any]) -> None:
    """Settles the item, however long the service is away: the work is done, and would be done again."""
    while True:
        try:
            await client.call("POST", f"/queues/{work.queue}/{how}", asked)
        except Conflict:
            return  # somebody else has it by now: there is nothing to settle
        except Unavailable as error:
            echo(f"{how} is tried again: {error.detail}", err=True)
            await asyncio.sleep(AGAIN_S)
        else:
            return


async def _extend(client: BatonClient, work: Work, receipts: dict[str, Any]) -> None:
    while True:
        await asyncio.sleep(work.lease_s / 3)
        # a failure is no reason to end the work: the next one may succeed in time
        with contextlib.suppress(BatonError):
            asked = receipts | {"lease_s": work.lease_s}
            await client.call("POST", f"/queues/{work.queue}/extend", asked)


async def _run(command: Sequence[str], item: dict[str, Any]) -> int:
    """The exit code; the command ends with this process's task."""
    data = base64.b64decode(item["raw"]) if "raw" in item else msgspec.json.encode(item["data"])
    about = {"QUEUE_ITEM_ID": item["id"] or "", "QUEUE_ITEM_ATTEMPT": str(item["attempt"])}
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, env=os.environ | about
    )
    try:
        await process.communicate(data)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
    assert process.returncode is not None
    return process.returncode
