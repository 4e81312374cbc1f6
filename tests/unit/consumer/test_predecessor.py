"""A process that starts under an id whose earlier process was killed, or still answers."""

from __future__ import annotations

import asyncio

import pytest

from services.consumer.member.predecessor import await_predecessor
from shared.errors import ZooKeeperUnavailable
from shared.model.cluster import MemberNode
from tests.fakes.listeners import InMemoryListeners, ListenerNetwork
from tests.fakes.virtual_time import until, virtual_time

HERE, THERE = "http://a", "http://elsewhere"


class Registered:
    """A registry that answers with `node`, or not at all."""

    def __init__(self, node: MemberNode | None) -> None:
        self.node = node
        self.is_away = False

    async def predecessor(self) -> MemberNode | None:
        if self.is_away:
            raise ZooKeeperUnavailable("away")
        return self.node


class Starting:
    """A process that starts at `HERE`, where it already listens itself."""

    def __init__(self, registered: str | None, was_open: bool | None = False) -> None:
        self.network = ListenerNetwork()
        self.network.open.add(HERE)
        self.registry = Registered(MemberNode(address=registered) if registered else None)
        self.complaints: list[str] = []
        self.task = asyncio.create_task(
            await_predecessor(
                self.registry,
                InMemoryListeners(self.network, HERE),
                HERE,
                was_open=was_open,
                complain=self.complaints.append,
            )
        )


@pytest.mark.parametrize("registered", [None, HERE, THERE])
@virtual_time
async def test_a_process_follows_a_dead_one_at_once(registered: str | None) -> None:
    """At its own address it has asked before it listened there."""
    starting = Starting(registered)

    async with asyncio.timeout(0.1):
        await starting.task

    assert starting.complaints == []


@virtual_time
async def test_a_lost_host_holds_nobody_up() -> None:
    """It neither answers nor refuses, as when a container comes back with another address."""
    starting = Starting(THERE)
    starting.network.silent.add(THERE)

    async with asyncio.timeout(0.1):
        await starting.task


@pytest.mark.parametrize(("registered", "was_open"), [(HERE, True), (THERE, False)])
@virtual_time
async def test_a_process_that_answers_keeps_its_id(registered: str, was_open: bool) -> None:
    """The second one waits until the node is gone, and says why it is not ready."""
    starting = Starting(registered, was_open)
    starting.network.open.add(registered)

    await asyncio.sleep(60)
    is_waiting = not starting.task.done()
    starting.registry.node = None
    await until(starting.task.done, within_s=1)

    assert is_waiting
    assert f"another process answers as this member at {registered}" in starting.complaints


@virtual_time
async def test_zookeeper_may_be_away_meanwhile() -> None:
    """It is asked again, and the reason is reported."""
    starting = Starting(HERE)
    starting.registry.is_away = True

    await asyncio.sleep(5)
    starting.registry.is_away = False
    await until(starting.task.done, within_s=1)

    assert starting.complaints != []
