"""Asks control which sessions are current in a group, and a judge of its own what is wrong with them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.fleet import Fleet
from tests.waiting import DEADLINE_S


async def ask(one: Fleet, method: str, path: str, **body: Any) -> httpx.Response:
    """Control's answer, once it has read everything."""
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{one.port_of('control')}", trust_env=False, timeout=DEADLINE_S
    ) as http:
        return await http.request(method, path, json=body or None)


async def wrong_in(one: Fleet, group: str) -> list[str]:
    """What the judge finds wrong with the current sessions of a group."""
    current = (await ask(one, "GET", f"/groups/{group}/current")).content
    prefix = f"{one.where.names.namespace}."
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(Path(__file__).with_name("seam_judge.py"))),
        *(one.where.kafka, prefix, str(one.where.streams)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate(current)
    assert process.returncode == 0
    return out.decode().splitlines()
