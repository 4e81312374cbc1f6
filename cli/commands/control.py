"""The requests that commands have in common: read an object, read a list, wait for something to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from cli.http.client import BatonClient, connect

PATIENCE_S = 2.0
WAIT_PATIENCE_S = 60.0
"""How long a request is retried with --wait: a restart of control must not end the wait."""


def get(url: str, path: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object at `path` of control."""

    async def ask() -> dict[str, Any]:
        async with connect(url, patience_s=PATIENCE_S) as control:
            answer: dict[str, Any] = await control.get(path, params)
            return answer

    return asyncio.run(ask())


def get_list(url: str, name: str, cursor: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Control's list `/name` with all its pages; `cursor` is the field that the next page starts after."""

    async def ask() -> dict[str, Any]:
        async with connect(url, patience_s=PATIENCE_S) as control:
            return await control.pages(f"/{name}", name, cursor, params)

    return asyncio.run(ask())


async def wait_until_ended(
    control: BatonClient,
    path: str,
    end_states: frozenset[str],
    poll_s: float,
    on_progress: Callable[[Mapping[str, Any]], None],
) -> dict[str, Any]:
    """The object at `path` once its state is one of `end_states`; `on_progress` gets every answer."""
    while True:
        answer: dict[str, Any] = await control.get(path)
        on_progress(answer)
        if answer.get("state") in end_states:
            return answer
        await asyncio.sleep(poll_s)
