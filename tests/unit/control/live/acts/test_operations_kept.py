"""Operations that are repeated, cancelled, taken back, and kept: nothing happens twice, none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.control.adapters.znodes.operations import ZooKeeperOperations
from services.control.core.operations.forecasts import StreamMove
from services.control.core.operations.operation import KEPT_MS, MAX_NODE_BYTES, Operation, OperationNode
from shared.errors import ZooKeeperUnavailable
from shared.model.names import Names
from tests.fakes.coordinator import InMemoryZooKeeper, ZnodeStore
from tests.unit.control.desk import DRAIN, MOVE, REBALANCE, Desk

NAMES = Names()
PAUSE = {"kind": "pause", "reason": "a bad deploy"}


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    async with desk.http:
        await desk.look()
        yield desk


@pytest.mark.parametrize("has_restarted", [False, True])
async def test_the_same_request_under_a_key_returns_the_same_operation(
    desk: Desk, has_restarted: bool
) -> None:
    """Nothing happens twice, also after a restart of control; another request under the key is refused."""
    first = await desk.post(**DRAIN, key="k")
    if has_restarted:
        desk.restart()
    again = await desk.post(**DRAIN, key="k")
    other = await desk.post(**REBALANCE, key="k")

    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert again.headers["location"] == first.headers["location"]
    assert (other.status_code, other.json()["type"]) == (422, "urn:baton:key-reused")
    assert len(desk.drain.asked) == len(desk.events) == len(await desk.listed()) == 1


async def test_a_failed_effect_leaves_its_key_free(desk: Desk) -> None:
    """A retry under the same key makes the effect."""
    desk.drain.is_down = True
    failed = await desk.post(**DRAIN, key="k")
    desk.drain.is_down = False
    retried = await desk.post(**DRAIN, key="k")

    assert (failed.status_code, retried.status_code) == (503, 202)
    assert desk.drain.asked == [("a", "http://a", "drained by anybody")]


async def test_an_operation_needs_the_plan_that_was_shown(desk: Desk) -> None:
    """`if_plan` of a dry run: 409 with the present one when other streams would move by now."""
    shown = (await desk.post(**DRAIN, dry_run=True)).json()["plan"]
    desk.group.pin({0: "b"})
    desk.group.act()
    await desk.look()
    refused = await desk.post(**DRAIN, if_plan=shown)
    now = (await desk.post(**DRAIN, dry_run=True)).json()["plan"]
    accepted = await desk.post(**DRAIN, if_plan=now)

    assert (refused.status_code, refused.json()["type"]) == (409, "urn:baton:plan-changed")
    assert refused.json()["plan"] == now != shown
    assert accepted.status_code == 202


async def test_an_operation_survives_a_restart(desk: Desk) -> None:
    """Control shows it again, with who and why, and follows it to its end; before it has read, 503."""
    operation = (await desk.post(**MOVE, reason="b is idle")).json()
    await desk.look()
    desk.restart()
    unread = await desk.http.get("/operations")
    await desk.look()
    shown = await desk.get(operation)
    state = await desk.until_ended(operation["id"])

    assert (unread.status_code, state) == (503, "done")
    assert {name: shown[name] for name in ("id", "who", "reason", "moves", "since")} == {
        "id": operation["id"],
        "who": "anybody",
        "reason": "b is idle",
        "moves": operation["moves"],
        "since": operation["since"],
    }


async def test_an_operation_keeps_its_age_over_a_restart(desk: Desk) -> None:
    """Its time runs from its begin: a restart does not give it more."""
    operation = (await desk.post(**MOVE)).json()
    desk.now_s = 50.0
    desk.restart()
    await desk.look()
    running = await desk.get(operation)
    desk.now_s = 61.0
    await desk.look()

    assert (running["state"], (await desk.get(operation))["state"]) == ("running", "failed")


async def test_two_controls_show_the_same_end(desk: Desk) -> None:
    """Both follow an operation; the first one to see its end stores it, the other one returns that."""
    operation = (await desk.post(**MOVE)).json()
    other = desk.control()
    await desk.look()
    await other.step()
    desk.group.act()
    await desk.look()
    desk.now_s = 9.0
    await other.step()

    assert other.operation_of(operation["id"]) == desk.operations.operation_of(operation["id"])
    assert other.operation_of(operation["id"]).ended_at == 0


async def test_one_of_two_controls_carries_out_a_key(desk: Desk) -> None:
    """Asked at once: one operation, and the other control says that it should be asked again."""
    other = Desk()
    other.znodes, other.view, other.pins = desk.znodes, desk.view, desk.pins
    other.restart()
    answers = await asyncio.gather(desk.post(**REBALANCE, key="k"), other.post(**REBALANCE, key="k"))
    await desk.look()

    assert [answer.status_code for answer in answers] in ([202, 202], [202, 503])
    assert len(await desk.listed()) == 1


@pytest.mark.parametrize(
    ("before", "body", "during"),
    [
        ({}, MOVE, {0: "b"}),
        ({0: "a", 4: "b"}, MOVE, {0: "b", 4: "b"}),
        ({0: "a", 4: "b"}, DRAIN, {4: "b"}),
        ({0: "a", 4: "b"}, REBALANCE, {}),
        ({0: "a", 4: "b"}, {"kind": "unpin", "stream": 0}, {4: "b"}),
    ],
)
async def test_a_cancelled_operation_restores_the_pins(
    desk: Desk, before: dict[int, str], body: dict[str, Any], during: dict[int, str]
) -> None:
    """And a member that drains takes streams again. Its `why` says who cancelled it, and why.

    To cancel it again changes nothing: the answer may have been lost.
    """
    desk.group.pin(before)
    await desk.look()
    operation = (await desk.post(**body)).json()
    pins = desk.group.view.pins
    cancelled = await desk.cancel(operation, "wrong one")
    again = await desk.cancel(operation)

    assert (pins, desk.group.view.pins) == (during, before)
    assert {node.state for node in desk.group.view.members.values()} == {"active"}
    assert (cancelled.json()["state"], cancelled.json()["why"]) == (
        "cancelled",
        "cancelled by anybody: wrong one",
    )
    assert (again.status_code, again.json()) == (200, cancelled.json())
    assert [event.what.split()[0] for event in desk.events] == [body["kind"], "cancel"]


async def test_a_cancel_leaves_what_others_have_changed_since(desk: Desk) -> None:
    """A pin that was replaced meanwhile stays."""
    operation = (await desk.post(**MOVE)).json()
    desk.group.pin({0: "c"})
    await desk.cancel(operation)

    assert desk.group.view.pins == {0: "c"}


async def test_what_is_done_cannot_be_cancelled(desk: Desk) -> None:
    """409: the opposite operation takes it back."""
    operation = (await desk.post(**MOVE)).json()
    await desk.until_ended(operation["id"])
    refused = await desk.cancel(operation)

    assert (refused.status_code, refused.json()["type"]) == (409, "urn:baton:operation-ended")


async def test_a_failed_cancel_changes_nothing(desk: Desk) -> None:
    """The operation goes on."""
    operation = (await desk.post(**DRAIN)).json()
    desk.drain.is_down = True
    refused = await desk.cancel(operation)

    assert refused.status_code == 503
    assert (await desk.get(operation))["state"] == "pending"


async def test_a_drain_cannot_be_cancelled_once_its_member_has_left(desk: Desk) -> None:
    """409: only a restart makes it join again, and what it owned has moved."""
    operation = (await desk.post(**DRAIN)).json()
    desk.group.act()
    desk.sources.cluster.cluster = desk.group.cluster
    await desk.view.step()
    refused = await desk.cancel(operation)

    assert (refused.status_code, "a has left" in refused.json()["detail"]) == (409, True)


async def test_an_undrained_member_takes_streams_again(desk: Desk) -> None:
    """The drain under way fails, and says why; a member that does not drain has nothing to undo."""
    drain = (await desk.post(**DRAIN)).json()
    await desk.look()
    desk.group.act(2)
    await desk.look()
    undrain = (await desk.post(kind="undrain", member="a")).json()
    state = await desk.until_ended(undrain["id"])
    idle = await desk.post(kind="undrain", member="a")

    assert (state, len(desk.group.view.streams_of("a"))) == ("done", 2)
    assert (await desk.get(drain))["why"] == "a is active again"
    assert (idle.status_code, idle.json()["type"]) == (409, "urn:baton:nothing-to-do")


async def test_an_unpinned_stream_goes_where_the_plan_wants_it(desk: Desk) -> None:
    """Of a stream that is not pinned there is nothing to remove."""
    desk.group.pin(dict.fromkeys(range(5), "b"))
    desk.group.act()
    await desk.look()
    operation = (await desk.post(kind="unpin", stream=0)).json()
    state = await desk.until_ended(operation["id"])
    again = await desk.post(kind="unpin", stream=0)

    assert (state, desk.group.owner(0), again.status_code) == ("done", "a", 409)


async def test_a_group_is_paused_and_resumed(desk: Desk) -> None:
    """The pause names who, when and why; it is done when every member reports it."""
    desk.now_s = 3.0
    pause = (await desk.post(**PAUSE)).json()
    found = desk.group.view.pause
    paused = await desk.until_ended(pause["id"])
    twice = await desk.post(**PAUSE)
    resume = (await desk.post(kind="resume")).json()
    resumed = await desk.until_ended(resume["id"])
    again = await desk.post(kind="resume")

    assert found is not None
    assert (found.who, found.since, found.reason) == ("anybody", 3000, "a bad deploy")
    assert (paused, resumed, desk.group.view.pause) == ("done", "done", None)
    assert (twice.status_code, again.status_code) == (409, 409)


async def test_what_is_undone_by_its_opposite_cannot_be_cancelled(desk: Desk) -> None:
    """The refusal names the opposite."""
    pause = (await desk.post(**PAUSE)).json()

    assert "ask for a resume" in (await desk.cancel(pause)).json()["detail"]


@pytest.mark.parametrize(
    ("before", "body", "what"),
    [
        ({}, MOVE, "move 0 to b"),
        (MOVE, {"kind": "unpin", "stream": 0}, "unpin 0"),
        ({}, DRAIN, "drain a"),
        (DRAIN, {"kind": "undrain", "member": "a"}, "undrain a"),
        ({}, REBALANCE, "rebalance"),
        ({}, PAUSE, "pause"),
        (PAUSE, {"kind": "resume"}, "resume"),
    ],
)
async def test_every_operation_is_an_event(
    desk: Desk, before: dict[str, Any], body: dict[str, Any], what: str
) -> None:
    """Who did what, and why; a dry run is none."""
    if before:
        await desk.post(**before)
        desk.group.act(streams=1)
        await desk.look()
        desk.events.clear()
    await desk.post(**body, dry_run=True)
    operation = (await desk.post(**body | {"reason": "because"})).json()

    told = [(event.kind, event.who, event.what, event.why, event.operation) for event in desk.events]
    assert told == [("action", "anybody", what, "because", operation["id"])]


@pytest.mark.parametrize(
    ("is_deaf", "why"), [(True, "a does not answer"), (False, "ZooKeeper is down for the test")]
)
async def test_an_operation_that_may_have_been_made_is_an_event(desk: Desk, is_deaf: bool, why: str) -> None:
    """The member drains, although its answer was lost or the pins could not be written.

    No operation says so.
    """
    desk.drain.loses_answers, desk.pins.is_down = is_deaf, not is_deaf
    refused = await desk.post(**DRAIN, reason="upgrade")

    assert (refused.status_code, desk.group.view.members["a"].state) == (503, "draining")
    assert await desk.listed() == []
    assert [(event.kind, event.who, event.what, event.why, event.operation) for event in desk.events] == [
        ("action", "anybody", f"drain a, without an answer: {why}", "upgrade", "")
    ]


async def test_a_cancel_that_may_have_been_made_is_an_event(desk: Desk) -> None:
    """The operation stays."""
    operation = (await desk.post(**DRAIN)).json()
    desk.drain.loses_answers = True
    await desk.cancel(operation, "wrong one")

    assert [(event.what, event.why, event.operation) for event in desk.events][1:] == [
        ("cancel drain a, without an answer: a does not answer", "wrong one", operation["id"])
    ]


async def test_old_operations_are_removed_from_zookeeper(desk: Desk) -> None:
    """A week after their end."""
    await desk.post(**REBALANCE)
    await desk.look()
    desk.now_s = KEPT_MS / 1000 + 1
    kept = (await desk.post(**REBALANCE)).json()
    await desk.look()

    stored = await InMemoryZooKeeper(desk.znodes).children(NAMES.operations)
    assert stored == [kept["id"]]


def an_operation(moves: int = 0) -> Operation:
    """A rebalance with so many moves."""
    move = StreamMove(stream=1, source="a" * 90, to="b" * 90, sessions=1, bytes=1)
    return Operation(
        kind="rebalance",
        group="default",
        id="x",
        state="pending",
        moves=[move] * moves,
        done=0,
        total=moves,
        sessions=0,
        bytes=0,
        why="",
        since=0,
    )


@pytest.mark.parametrize("moves", [0, 10_000])
def test_an_operation_of_any_size_fits_into_its_znode(moves: int) -> None:
    """Of a very large one, the last moves are not kept."""
    node = OperationNode(operation=an_operation(moves))

    assert len(node.encode()) <= MAX_NODE_BYTES


async def test_a_lost_answer_to_a_begin_is_read_back() -> None:
    """The operation is stored once, whether or not the answer arrived; without any answer it is unknown."""
    znodes = InMemoryZooKeeper(ZnodeStore())
    store, node = ZooKeeperOperations(znodes, NAMES), OperationNode(operation=an_operation())
    await znodes.make_path(NAMES.operations)
    znodes.lose_answers = 1
    is_new = await store.create(node)
    await store.forget(node.operation.id)
    znodes.lose_requests = 1

    assert is_new
    with pytest.raises(ZooKeeperUnavailable):
        await store.create(node)
