"""What the end-to-end tests of several groups share: control's answers, kills, and the judge of the seam."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.fleet import Fleet
from tests.waiting import DEADLINE_S

JUDGE = Path(__file__).with_name("seam_judge.py")


async def ask(one: Fleet, method: str, path: str, **body: Any) -> httpx.Response:
    """Control's answer, once it has read everything."""
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{one.port_of('control')}", trust_env=False, timeout=DEADLINE_S
    ) as http:
        return await http.request(method, path, json=body or None)


async def kill(one: Fleet, index: int) -> None:
    """SIGKILL, and its end."""
    one.consumer(index).signal(signal.SIGKILL)
    await one.consumer(index).ended()


async def wrong_in(one: Fleet, group: str, lost: Path | None = None) -> list[str]:
    """What the judge finds wrong with the current sessions of a group; `lost`: the logs as they were."""
    current = (await ask(one, "GET", f"/groups/{group}/current")).content
    found = await _judge(one, *(() if lost is None else ("--lost", str(lost))), given=current)
    return found.splitlines()


async def keep_logs(one: Fleet, file: Path) -> None:
    """Lets the judge write down the logs as they are."""
    await _judge(one, "--keep", str(file))


async def _judge(one: Fleet, *arguments: str, given: bytes = b"") -> str:
    where = one.where.kafka, f"{one.where.names.namespace}.", str(one.where.streams)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(JUDGE), *where, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate(given)
    assert process.returncode == 0
    return out.decode()
