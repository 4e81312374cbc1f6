"""Asks every member for its status, and one active member of each group for the plan, over HTTP.

One of control's files that import httpx. Every answer has a deadline. A member that misses it is marked
silent, and keeps its last status for as long as it is registered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TypeVar

import httpx
import msgspec

from services.control.core.observed import Answers, MemberStatus, Plan
from shared.model.cluster import MemberNode
from shared.service.tls import TlsFiles, client_context

ANSWER_TIMEOUT_S = 2.0

HttpClient = httpx.AsyncClient
T = TypeVar("T")
logger = logging.getLogger(__name__)


def http_client(tls: TlsFiles | None = None) -> httpx.AsyncClient:
    """A client for members and Spark's drivers, without a time-out: each call sets its own."""
    # trust_env: proxies in the environment lead to the outside world
    verify = True if tls is None else client_context(tls)
    return httpx.AsyncClient(verify=verify, timeout=None, trust_env=False)


class HttpMembers:
    """A `MemberSource` that asks through `http`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._statuses: dict[tuple[str, str], MemberStatus] = {}

    async def read(self, members: Mapping[tuple[str, str], MemberNode]) -> Answers:
        """The statuses of the members (by group and id), and a plan per group."""
        names = list(members)
        answers = await asyncio.gather(
            *(answer_of(self._http, f"{members[name].address}/status", MemberStatus) for name in names)
        )
        self._statuses = {name: status for name, status in self._statuses.items() if name in members}
        silent = set()
        for name, answer in zip(names, answers, strict=True):
            # another member may have taken over the address: its answer is not this member's
            if answer is not None and (answer.group, answer.id) == name:
                self._statuses[name] = answer
            else:
                silent.add(name)
        return Answers(
            statuses=dict(self._statuses),
            silent=frozenset(silent),
            plans=await self._plans({name: members[name] for name in names if name not in silent}),
        )

    async def _plans(self, members: Mapping[tuple[str, str], MemberNode]) -> dict[str, tuple[str, Plan]]:
        chosen: dict[str, str] = {}
        for group, member in sorted(members):
            if members[group, member].state == "active":
                chosen.setdefault(group, member)
        plans = await asyncio.gather(
            *(answer_of(self._http, f"{members[name].address}/plan", Plan) for name in chosen.items())
        )
        return {
            group: (member, plan)
            for (group, member), plan in zip(chosen.items(), plans, strict=True)
            if plan is not None
        }


async def answer_of(http: httpx.AsyncClient, url: str, kind: type[T]) -> T | None:
    """The JSON at the URL as `kind`; None if there is no such answer in time."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            response = await http.get(url)
        if response.status_code != 200:
            return None
        return msgspec.json.decode(response.content, type=kind)
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, msgspec.DecodeError) as error:
        logger.debug("no answer", extra={"url": url, "why": repr(error)})
        return None
