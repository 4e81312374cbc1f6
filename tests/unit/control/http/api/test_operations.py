"""Operations over HTTP: forecast, effect, progress, and every refusal as a problem document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from services.control.core.operations import operation as operations
from services.control.core.report.observed import Cluster
from tests.unit.control.desk import DRAIN, MOVE, REBALANCE, Desk
from tests.unit.control.operators_world import BYTES, SESSIONS, TIMEOUT_S


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    async with desk.http:
        await desk.look()
        yield desk


@pytest.mark.parametrize("body", [MOVE, DRAIN, REBALANCE])
async def test_a_dry_run_forecasts_and_changes_nothing(desk: Desk, body: dict[str, Any]) -> None:
    """200 with the same moves as the operation itself; pins, members and operations stay as they are."""
    before = desk.group.view

    dry = await desk.post(**body, dry_run=True)
    listed = await desk.listed()
    after = desk.group.view
    real = await desk.post(**body)

    moves = dry.json()["moves"]
    assert (dry.status_code, after, listed) == (200, before, [])
    assert dry.json()["totals"]["moves"] == len(moves)
    assert real.json()["moves"] == moves


async def test_a_move_is_accepted_followed_and_done(desk: Desk) -> None:
    """202 with its Location; the pin is set at once; done when the stream runs on its new owner."""
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


async def test_a_drain_asks_the_member_and_removes_its_pins(desk: Desk) -> None:
    """The member's `POST /drain` starts it. Without its pins, it gets no special share when it returns."""
    desk.group.pin({0: "a", 4: "b"})
    await desk.look()

    operation = (await desk.post(**DRAIN)).json()
    state = await desk.until_ended(operation["id"])

    assert desk.drain.asked == [("a", "http://a", "drained by anybody")]
    assert desk.group.view.pins == {4: "b"}
    assert (state, desk.group.owner(0)) == ("done", "b")
    assert "a" not in desk.group.view.members


async def test_a_failed_drain_can_be_repeated(desk: Desk) -> None:
    """A member that is already draining goes on, and the new operation follows it."""
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


async def test_a_rebalance_removes_all_pins(desk: Desk) -> None:
    """Shares are even afterwards."""
    desk.group.pin(dict.fromkeys(range(5), "b"))
    desk.group.act()
    await desk.look()

    operation = (await desk.post(**REBALANCE)).json()
    state = await desk.until_ended(operation["id"])

    assert (state, operation["total"], desk.group.view.pins) == ("done", 2, {})
    assert [len(desk.group.view.streams_of(name)) for name in "ab"] == [2, 3]


async def test_without_streams_there_is_none_to_move(desk: Desk) -> None:
    """The refusal names no range of streams that begins above its end."""
    desk.group.view = replace(desk.group.view, count=0, claims={})
    await desk.look()

    answer = await desk.post(**MOVE)

    assert (answer.status_code, answer.json()["detail"]) == (
        404,
        "there is no stream 0; there are none yet",
    )


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (MOVE | {"group": "nobody"}, 404, "unknown-group"),
        (MOVE | {"stream": 5}, 404, "unknown-stream"),
        (DRAIN | {"member": "z"}, 404, "unknown-member"),
        (MOVE | {"to": "z"}, 404, "unknown-member"),
        (MOVE | {"stream": -1}, 422, "invalid-input"),
        ({"kind": "explode"}, 422, "invalid-input"),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
async def test_refusals_are_problem_documents(
    desk: Desk, body: dict[str, Any], status: int, kind: str, dry_run: bool
) -> None:
    """Each refusal has its status and its type; a dry run is refused like the operation."""
    response = await desk.post(**body, dry_run=dry_run)

    assert (response.status_code, response.json()["type"]) == (status, f"urn:baton:{kind}")
    assert response.headers["content-type"] == "application/problem+json"
    assert (await desk.listed()) == []


@pytest.mark.parametrize(
    ("content", "where", "why"),
    [
        (b'{"kind":"move","stream":-1,"to":"b"}', "body.stream", "Expected `int` >= 0"),
        (b'{"kind":"rebalance","dry_run":"x"}', "body.dry_run", "Expected `bool`, got `str`"),
        (b'{"kind":"move","stream":"0","to":"b"}', "body.stream", "Expected `int`, got `str`"),
        (rb'{"kind":"\ud800"}', "body", r"half a surrogate pair at byte 9: \ud800 alone is not a character"),
        (b"[]", "body", "Expected `object`, got `array`"),
    ],
)
async def test_a_refused_body_names_its_fault(desk: Desk, content: bytes, where: str, why: str) -> None:
    """By the field's path; half of a surrogate pair is not a text."""
    response = await desk.http.post("/operations", content=content)

    assert (response.status_code, response.json()["detail"]) == (422, "the request has faults")
    assert response.json()["errors"] == [{"in": where, "detail": why}]


async def test_two_operations_do_not_move_the_same_stream(desk: Desk) -> None:
    """The second is checked after the first has made its effect; a dry run still answers."""
    answers = await asyncio.gather(desk.post(**MOVE), desk.post(**MOVE))
    dry = await desk.post(**DRAIN, dry_run=True)

    first, again = sorted(answers, key=lambda answer: answer.status_code)
    assert [first.status_code, again.status_code, dry.status_code] == [202, 409, 200]
    assert again.json()["operation"] == first.json()["id"]
    assert again.headers["link"] == f'<{first.headers["location"]}>; rel="related"'
    assert again.json()["type"] == "urn:baton:operation-under-way"
    assert first.json()["id"] in again.json()["detail"]


async def test_a_failed_effect_leaves_no_operation(desk: Desk) -> None:
    """503, and control follows nothing."""
    desk.pins.is_down = desk.drain.is_down = True

    answers = [await desk.post(**body) for body in (MOVE, DRAIN, REBALANCE)]

    assert [answer.status_code for answer in answers] == [503] * 3
    assert (await desk.listed()) == []
    assert {node.state for node in desk.group.view.members.values()} == {"active"}


async def test_a_silent_member_is_not_drained(desk: Desk) -> None:
    """Another process may have its address by now."""
    desk.group.silent = {"a"}
    await desk.look()

    response = await desk.post(**DRAIN)

    assert (response.status_code, response.json()["type"]) == (503, "urn:baton:peer-unavailable")
    assert desk.drain.asked == []


async def test_operations_need_a_first_reading() -> None:
    """Before it, control does not know the members."""
    desk = Desk()
    async with desk.http:
        response = await desk.post(**MOVE)
        await desk.operations.step()

    assert (response.status_code, desk.group.view.pins) == (503, {})


async def test_operations_fail_when_their_group_is_gone(desk: Desk) -> None:
    """After a reset of ZooKeeper, nothing is left to follow."""
    operation = (await desk.post(**MOVE)).json()

    desk.sources.cluster.cluster = Cluster()
    await desk.view.step()
    await desk.operations.step()

    assert (await desk.get(operation))["state"] == "failed"
    assert (await desk.get(operation))["why"] == "group 'default' is gone"


async def test_operations_are_listed_newest_first_in_pages(desk: Desk) -> None:
    """`limit` and `after` page through them; an unknown operation is 404."""
    made = []
    for _ in range(5):
        desk.now_s += 1
        made.append((await desk.post(**REBALANCE)).json()["id"])
        await desk.look()

    whole = (await desk.http.get("/operations")).json()
    page = (await desk.http.get("/operations", params={"limit": 2, "after": made[3]})).json()
    unknown = [await desk.http.get(path) for path in ("/operations/x", "/operations?after=x")]

    assert [row["id"] for row in whole["operations"]] == made[::-1]
    assert [row["id"] for row in page["operations"]] == [made[2], made[1]]
    assert [answer.status_code for answer in unknown] == [404, 404]
    assert unknown[0].json()["type"] == "urn:baton:unknown-operation"


async def test_the_oldest_ended_operations_are_forgotten(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, but no operation under way is dropped."""
    monkeypatch.setattr(operations, "KEPT", 3)
    kept = (await desk.post(**MOVE)).json()
    made = []
    for _ in range(5):
        desk.now_s += 1
        made.append((await desk.post(**REBALANCE)).json()["id"])
        await desk.operations.step()

    assert [row["id"] for row in await desk.listed()] == [made[4], made[3], kept["id"]]
