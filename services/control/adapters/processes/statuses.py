"""Asks members for their status and plan, and producers for their counts, over HTTP.

Every answer has a deadline. A member that misses it is marked silent, and keeps its last status for as long
as it is registered.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from services.control.adapters.processes.kept_connections import Ask
from services.control.core.report.observed import Answers, MemberStatus, Plan
from services.control.core.report.producer_rates import ProducerCounts
from shared.model.cluster import MemberNode, ProducerNode
from shared.together import together

T = TypeVar("T")
logger = logging.getLogger(__name__)


class HttpMembers:
    """A `MemberSource` that asks each member for its status, and an active one of each group for the plan."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._statuses: dict[tuple[str, str], MemberStatus] = {}

    async def read(self, members: Mapping[tuple[str, str], MemberNode]) -> Answers:
        """The statuses of the members (by group and id), and a plan per group."""
        names = list(members)
        answers = await together(
            _answer_of(self._ask, f"{members[name].address}/status", MemberStatus) for name in names
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
        plans = await together(
            _answer_of(self._ask, f"{members[name].address}/plan", Plan) for name in chosen.items()
        )
        return {
            group: (member, plan)
            for (group, member), plan in zip(chosen.items(), plans, strict=True)
            if plan is not None
        }


class HttpProducers:
    """A `ProducerSource` that asks by `ask`, at the private port of a producer that has one."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def read(self, producers: Mapping[str, ProducerNode]) -> dict[str, ProducerCounts]:
        """What each of the producers that answer has counted, by id."""
        at = {name: node.private_address or node.address for name, node in producers.items()}
        addresses = sorted(set(at.values()))
        answers = await together(
            _answer_of(self._ask, f"{address}/status", ProducerCounts) for address in addresses
        )
        return {
            counts.id: counts
            for address, counts in zip(addresses, answers, strict=True)
            # another producer may have taken over the address
            if counts is not None and at.get(counts.id) == address
        }


async def _answer_of(ask: Ask, url: str, kind: type[T]) -> T | None:
    """The JSON at the URL as `kind`; None if there is no such answer in time."""
    body = await ask(url)
    if body is None:
        return None
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        logger.debug("answer unreadable", extra={"url": url, "why": repr(error)})
        return None
