"""Operations and pauses as they are kept in a real ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from services.control.adapters.znodes.operations import ZooKeeperOperations
from services.control.adapters.znodes.pause import ZooKeeperPause
from services.control.core.operations.forecasts import StreamMove
from services.control.core.operations.operation import Operation, OperationNode, cancelled, failed
from shared.model.cluster import PauseNode
from shared.model.names import Names
from shared.zookeeper.connection import ZooKeeper


@pytest.fixture
async def znodes(zookeeper: str) -> AsyncIterator[ZooKeeper]:
    async with ZooKeeper(zookeeper, 6.0) as znodes:
        yield znodes


@pytest.fixture
def names(namespace: str) -> Names:
    return Names(namespace)


def node(name: str, moves: int = 1) -> OperationNode:
    """A move that begins."""
    move = StreamMove(stream=1, source="a", to="b" * 100, sessions=None, bytes=None)
    operation = Operation(
        kind="move",
        group="default",
        stream=1,
        to="b",
        id=name,
        who="ann",
        reason="b is idle",
        state="pending",
        moves=[move] * moves,
        done=0,
        total=moves,
        sessions=0,
        bytes=0,
        why="",
        since=5,
        pins_before={1: None, 7: "a"},
    )
    return OperationNode(operation=operation, request="digest")


async def test_an_operation_is_kept_as_it_began_and_as_it_ended(znodes: ZooKeeper, names: Names) -> None:
    """Every control reads the same; the first end stays; what is forgotten is gone."""
    one, other = ZooKeeperOperations(znodes, names), ZooKeeperOperations(znodes, names)
    made = node("x")
    empty = await one.read()
    created = [await store.create(made) for store in (one, other)]
    begun = await other.read()
    ended = await one.end(failed(made.operation, "too late", 9))
    second = await other.end(cancelled(made.operation, "enough", 10))
    read = [await store.read() for store in (one, other)]
    await one.forget("x")

    assert (empty, created, begun) == ({}, [True, False], {"x": made})
    assert second == ended
    assert read == [{"x": msgspec.structs.replace(made, operation=ended)}] * 2
    assert await other.read() == {}


async def test_the_largest_operation_fits(znodes: ZooKeeper, names: Names) -> None:
    """ZooKeeper refuses znodes of 1 MB and more."""
    store = ZooKeeperOperations(znodes, names)

    assert await store.create(node("x", moves=9_999))
    assert (await store.read())["x"].operation.total == 9_999


async def test_an_unreadable_operation_hides_no_other(znodes: ZooKeeper, names: Names) -> None:
    """Anybody who can write there may damage one."""
    store = ZooKeeperOperations(znodes, names)
    for name in ("x", "y"):
        await store.create(node(name))
    await znodes.set(names.operation("x"), b"{")

    assert list(await store.read()) == ["y"]


async def test_the_first_pause_stays_and_is_resumed_once(znodes: ZooKeeper, names: Names) -> None:
    """Pausing a paused group and resuming a running one change nothing."""
    pauses = ZooKeeperPause(znodes, names)
    await znodes.make_path(names.group("default"))
    for who in ("ann", "bob"):
        await pauses.pause("default", PauseNode(who=who, since=7, reason="why"))
    stored = await znodes.get(names.pause("default"))
    for _ in range(2):
        await pauses.resume("default")

    assert stored is not None
    assert stored.data == b'{"who":"ann","since":7,"reason":"why"}'
    assert await znodes.get(names.pause("default")) is None
