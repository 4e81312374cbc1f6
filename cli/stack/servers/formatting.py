"""Formats Kafka's storage: runs the tool that Kafka has for it to its end."""

from __future__ import annotations

import asyncio
import contextlib
import signal

from cli.stack.faults import NotReady
from cli.stack.processes.leash import on_leash
from cli.stack.processes.supervisor import last_line

TIMEOUT_S = 60.0


async def format_storage(argv: list[str]) -> None:
    """Runs the command that formats it. Raises NotReady with the last line of its output when it fails."""
    process = await asyncio.create_subprocess_exec(
        *on_leash(argv),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        output = b"it took too long"
    finally:
        with contextlib.suppress(ProcessLookupError):
            # also after a cancellation, which leaves it running
            process.send_signal(signal.SIGKILL)
    if process.returncode != 0:
        raise NotReady(f"Kafka's storage cannot be formatted: {last_line(output) or 'no output'}")
