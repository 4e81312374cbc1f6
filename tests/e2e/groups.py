"""What the end-to-end tests of several groups share: control's answers, kills, and the judge of the seam."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.fleet import Fleet
from tests.waiting import DEADLINE_S, until

JUDGE = Path(__file__).with_name("seam_judge.py")


async def ask(one: Fleet, method: str, path: str, **body: Any) -> httpx.Response:
    """Control's answer, once it has read everything."""
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{one.port_of('control')}", trust_env=False, timeout=DEADLINE_S
    ) as http:
        return await http.request(method, path, json=body or None)


async def rewind(one: Fleet, group: str, name: str, **wish: Any) -> list[int]:
    """Makes a group that follows this one; its starts."""
    asked = {"kind": "rewind", "group": group, "as": name, **wish}
    path, last = one.where.names.start(name), ""

    async def is_made() -> bool:
        nonlocal last
        # without `if_plan`: a group that reads on has another plan each time, on a slow machine for ever
        made = await ask(one, "POST", "/operations", **asked)
        last = made.text
        return made.status_code == 202 or await one.znodes.get(path, awaits_creation=False) is not None

    await until(is_made, lambda: f"not made: {last}\n{one.tail()}")
    znode = await one.znodes.get(path)
    assert znode is not None
    offsets: dict[str, int] = json.loads(znode.data)["offsets"]
    return [offsets[str(stream)] for stream in range(one.where.streams)]


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
