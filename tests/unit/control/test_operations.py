"""Operations over HTTP: forecast, effect, progress, and every refusal as a problem document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from services.control.app import create_app
from services.control.core.observed import Cluster
from services.control.live import operations
from services.control.live.feed import EventFeed
from services.control.live.metrics import registry_for
from tests.unit.control.operators_world import BYTES, SESSIONS, TIMEOUT_S, OperatorsWorld
from tests.unit.control.test_app import InMemoryRunner

MOVE = {"kind": "move", "stream": 0, "to": "b"}
DRAIN = {"kind": "drain", "member": "a"}
REBALANCE = {"kind": "rebalance"}


class Desk(OperatorsWorld):
    """Control's face over a group of 5 streams at two members."""

    def __init__(self) -> None:
        super().__init__(5, "ab")
        feed, runner = EventFeed(), InMemoryRunner()
        app = create_app(
            view=self.view,
            feed=feed,
            operations=self.operations,
            runner=runner,
            registry=registry_for(self.view, runner, feed),
        )
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control")

    async def post(self, **body: Any) -> httpx.Response:
        """The answer to the operation."""
        return await self.http.post("/operations", json=body)

    async def get(self, operation: dict[str, Any]) -> dict[str, Any]:
        """How far the operation is."""
        answer: dict[str, Any] = (await self.http.get(f"/operations/{operation['id']}")).json()
        return answer


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    async with desk.http:
        await desk.look()
        yield desk


@pytest.mark.parametrize("body", [MOVE, DRAIN, REBALANCE])
async def test_a_dry_run_shows_moves_and_cost_and_does_nothing(desk: Desk, body: dict[str, Any]) -> None:
    """200, the same moves as the operation itself, and neither pins nor members nor operations change."""
    before = desk.group.view

    dry = await desk.post(**body, dry_run=True)
    listed = (await desk.http.get("/operations")).json()
    after = desk.group.view
    real = await desk.post(**body)

    moves = dry.json()["moves"]
    assert (dry.status_code, after, listed) == (200, before, {"operations": []})
    assert dry.json()["totals"] == {
        "moves": len(moves),
        "sessions": SESSIONS * len(moves),
        "bytes": BYTES * len(moves),
    }
    assert real.json()["moves"] == moves


async def test_a_move_is_accepted_followed_and_done(desk: Desk) -> None:
    """202 with its Location; the pin stands at once; done when the stream runs at its new owner."""
    response = await desk.post(**MOVE)
    operation = response.json()
    at_first = await desk.get(operation)
    await desk.look()
    running = await desk.get(operation)
    desk.group.act()
    desk.now_s = 7.0
    await desk.look()
    done = await desk.get(operation)

    assert (response.status_code, response.headers["location"]) == (202, f"/operations/{operation['id']}")
    assert desk.group.view.pins == {0: "b"}
    assert [one["state"] for one in (at_first, running, done)] == ["pending", "running", "done"]
    assert (running["done"], running["total"], running["why"]) == (0, 1, "stream 0 is still with a")
    assert (done["done"], done["sessions"], done["bytes"]) == (1, SESSIONS, BYTES)
    assert (done["since"], done["ended_at"], done["why"]) == (0, 7000, "")


async def test_a_drain_asks_the_member_and_takes_its_pins_away(desk: Desk) -> None:
    """Its own `POST /drain` begins it; so that nothing is pinned to it when it comes back."""
    desk.group.pin({0: "a", 4: "b"})
    await desk.look()

    operation = (await desk.post(**DRAIN)).json()
    state = await desk.until_ended(operation["id"])

    assert desk.drain.asked == [("a", "http://a", "drained by an operator")]
    assert desk.group.view.pins == {4: "b"}
    assert (state, desk.group.owner(0)) == ("done", "b")
    assert "a" not in desk.group.view.members


async def test_a_drain_may_be_asked_for_again_once_it_has_failed(desk: Desk) -> None:
    """A member that drains already goes on, and is followed anew."""
    first = (await desk.post(**DRAIN)).json()
    await desk.look()
    second = await desk.post(**DRAIN)
    desk.now_s = TIMEOUT_S + 1
    await desk.look()
    third = await desk.post(**DRAIN)

    assert second.status_code == 409
    assert (await desk.get(first))["state"] == "failed"
    assert third.status_code == 202
    assert await desk.until_ended(third.json()["id"]) == "done"


async def test_a_rebalance_takes_all_pins_away(desk: Desk) -> None:
    """And the plan is even again."""
    desk.group.pin(dict.fromkeys(range(5), "b"))
    desk.group.act()
    await desk.look()

    operation = (await desk.post(**REBALANCE)).json()
    state = await desk.until_ended(operation["id"])

    assert (state, operation["total"], desk.group.view.pins) == ("done", 2, {})
    assert [len(desk.group.view.streams_of(name)) for name in "ab"] == [2, 3]


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (MOVE | {"group": "nobody"}, 404, "unknown-group"),
        (MOVE | {"stream": 5}, 404, "unknown-stream"),
        (DRAIN | {"member": "z"}, 404, "unknown-member"),
        (MOVE | {"to": "z"}, 409, "move-refused"),
        (MOVE | {"stream": -1}, 422, "invalid-input"),
        (MOVE | {"member": "a"}, 422, "invalid-input"),
        (MOVE | {"to": ""}, 422, "invalid-input"),
        ({"kind": "move", "stream": 0}, 422, "invalid-input"),
        ({"kind": "explode"}, 422, "invalid-input"),
        ({}, 422, "invalid-input"),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
async def test_refusals_are_problem_documents(
    desk: Desk, body: dict[str, Any], status: int, kind: str, dry_run: bool
) -> None:
    """With its status, its type and a sentence; a dry run is refused like the operation."""
    response = await desk.post(**body, dry_run=dry_run)

    assert (response.status_code, response.json()["type"]) == (status, f"urn:baton:{kind}")
    assert response.headers["content-type"] == "application/problem+json"
    assert desk.operations.all() == []


async def test_the_same_stream_is_not_moved_by_two_operations(desk: Desk) -> None:
    """The second is refused, also when it would move it only in exchange; a dry run still answers."""
    first = (await desk.post(**MOVE)).json()

    again = await desk.post(**MOVE)
    exchange = await desk.post(**DRAIN)
    dry = await desk.post(**DRAIN, dry_run=True)

    assert [again.status_code, exchange.status_code, dry.status_code] == [409, 409, 200]
    assert again.json()["type"] == "urn:baton:operation-under-way"
    assert first["id"] in again.json()["detail"]


async def test_two_requests_at_once_make_one_operation(desk: Desk) -> None:
    """The first effect is made before the second is looked at."""
    answers = await asyncio.gather(desk.post(**MOVE), desk.post(**MOVE))

    assert sorted(answer.status_code for answer in answers) == [202, 409]


async def test_an_effect_that_could_not_be_made_is_no_operation(desk: Desk) -> None:
    """503, and nothing is followed."""
    desk.pins.is_down = desk.drain.is_down = True

    answers = [await desk.post(**body) for body in (MOVE, DRAIN, REBALANCE)]

    assert [answer.status_code for answer in answers] == [503] * 3
    assert desk.operations.all() == []
    assert {node.state for node in desk.group.view.members.values()} == {"active"}


async def test_a_member_that_does_not_answer_is_not_asked_to_drain(desk: Desk) -> None:
    """Somebody else may live at its address by now."""
    desk.group.silent = {"a"}
    await desk.look()

    response = await desk.post(**DRAIN)

    assert (response.status_code, response.json()["type"]) == (503, "urn:baton:peer-unavailable")
    assert desk.drain.asked == []


async def test_before_the_first_reading_nothing_is_begun() -> None:
    """Control does not know yet who is there."""
    desk = Desk()
    async with desk.http:
        response = await desk.post(**MOVE)
        desk.operations.step()

    assert (response.status_code, desk.group.view.pins) == (503, {})


async def test_when_the_group_is_gone_its_operations_have_failed(desk: Desk) -> None:
    """ZooKeeper was reset: what they were about stands nowhere any more."""
    operation = (await desk.post(**MOVE)).json()

    desk.sources.cluster.cluster = Cluster()
    await desk.view.step()
    desk.operations.step()

    assert (await desk.get(operation))["state"] == "failed"
    assert (await desk.get(operation))["why"] == "group 'default' is gone"


async def test_operations_are_listed_the_newest_first_in_pages(desk: Desk) -> None:
    """`limit` and `after` page through; an operation that is not remembered is 404."""
    made = []
    for _ in range(5):
        made.append((await desk.post(**REBALANCE)).json()["id"])
        await desk.look()

    whole = (await desk.http.get("/operations")).json()
    page = (await desk.http.get("/operations", params={"limit": 2, "after": made[3]})).json()
    unknown = [await desk.http.get(path) for path in ("/operations/x", "/operations?after=x")]

    assert [row["id"] for row in whole["operations"]] == made[::-1]
    assert [row["id"] for row in page["operations"]] == [made[2], made[1]]
    assert [answer.status_code for answer in unknown] == [404, 404]
    assert unknown[0].json()["type"] == "urn:baton:unknown-operation"


async def test_old_operations_are_forgotten_but_not_those_under_way(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory stays bounded."""
    monkeypatch.setattr(operations, "KEPT", 3)
    kept = (await desk.post(**MOVE)).json()
    made = []
    for _ in range(5):
        made.append((await desk.post(**REBALANCE)).json()["id"])
        desk.operations.step()

    assert [found.id for found in desk.operations.all()] == [made[4], made[3], kept["id"]]
