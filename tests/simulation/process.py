"""One process of the simulation, and what it died of."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterator
from dataclasses import dataclass

from services.consumer.member.member import Member
from tests.simulation.wire import Weather, Wire
from tests.simulation.zookeeper import SimulatedZooKeeper


@dataclass(slots=True)
class Process:
    """One life of a member: a process with its ways to the servers."""

    name: str
    member_id: str
    zookeeper: SimulatedZooKeeper
    weathers: dict[str, Weather]
    wires: list[Wire]
    context: contextvars.Context
    stop: asyncio.Event
    task: asyncio.Task[None] | None = None
    member: Member | None = None
    wall_offset_ms: int = 0
    is_leaving: bool = False

    def __repr__(self) -> str:
        return f"<Process {self.name}>"


def causes_of(error: BaseException) -> str:
    """The errors in a group of errors, in words."""
    return ", ".join(_leaves(error))


def _leaves(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield repr(error)
