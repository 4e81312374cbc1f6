"""Operations by the console's forms: confirmed, refused, followed and cancelled."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.model.cluster import MemberNode
from tests.unit.control.http.console.browser import posted
from tests.unit.control.http.console.operations_desk import DRAIN, OperationsDesk, desk_with


@pytest.fixture
async def desk() -> AsyncIterator[OperationsDesk]:
    desk = await desk_with()
    async with desk.http:
        yield desk


async def test_a_confirmed_dry_run_becomes_the_operation_and_is_followed(desk: OperationsDesk) -> None:
    """The form sends what was shown, and leads to the operation's page, which says what it waits for."""
    confirm = (await desk.get(DRAIN)).form("/console/operations")
    assert confirm is not None
    place, answer = await desk.start(**confirm, reason="kernel update")
    begun = await desk.get(place)
    desk.world.group.act(streams=1)
    await desk.world.look()
    desk.handed_over(desk.world.operations.all()[0].moves[0].stream, "b", 43.0)
    half = await desk.get(place)
    half_answer = (await desk.http.get(place.removeprefix("/console"))).json()
    while not desk.world.operations.all()[0].has_ended:
        desk.world.group.act(streams=1)
        await desk.world.look()
    done = await desk.get(place)
    done_answer = (await desk.http.get(place.removeprefix("/console"))).json()

    assert answer.status == 303
    assert desk.world.drain.asked[0][0] == "a"
    assert "0 of 3 streams have moved. It waits:" in begun.text
    assert "1 of 3 streams have moved, all warm. It waits: stream" in half.text
    assert "moved, warm 10 43 ms" in half.text
    answer_then = half_answer["progress"]
    assert [one["stream"] for one in answer_then] == [one["stream"] for one in half_answer["moves"]]
    assert (answer_then[0]["state"], answer_then[0]["warm"], answer_then[0]["pause_ms"]) == (
        "moved",
        True,
        43.0,
    )
    assert [one["state"] for one in answer_then[1:]] == ["waiting", "waiting"]
    assert [one["state"] for one in done_answer["progress"]] == ["moved"] * 3
    assert half.values("div", "aria-valuenow") == ["33"]
    assert "Drain a: done" in done.text
    assert "3 of 3 streams have moved" in done.text


async def test_a_plan_that_has_changed_is_not_carried_out(desk: OperationsDesk) -> None:
    """The form carries what was shown; the page that refuses leads to what would happen now."""
    confirm = (await desk.get(DRAIN)).form("/console/operations")
    assert confirm is not None
    desk.world.group.member("c", MemberNode(address="http://c"))
    await desk.world.look()
    place, page = await desk.start(**confirm)

    assert (place, page.status) == ("", 409)
    assert "look at the dry run again" in page.text
    assert desk.world.operations.all() == []


async def test_a_form_that_is_sent_twice_begins_one_operation(desk: OperationsDesk) -> None:
    """Both answers lead to it; another form has another key."""
    pages = [await desk.get(DRAIN) for _ in range(2)]
    first, second = (page.form("/console/operations") for page in pages)
    assert first is not None
    assert second is not None
    places = [(await desk.start(**first, reason="twice"))[0] for _ in range(2)]

    assert places[0] == places[1] != ""
    assert len(desk.world.operations.all()) == 1
    assert first["key"] != second["key"]


async def test_who_asked_and_why_is_kept_and_shown(desk: OperationsDesk) -> None:
    """As an event, and on the operation's page."""
    place, _ = await desk.start(kind="drain", member="a", reason="kernel <update>")
    page = await desk.get(place)

    assert [(event.kind, event.what, event.why) for event in desk.world.events] == [
        ("action", "drain a", "kernel <update>")
    ]
    assert "requested by anybody: kernel <update>" in page.text
    assert "<update>" not in page.html


async def test_an_operation_can_be_cancelled_from_its_page(desk: OperationsDesk) -> None:
    """Its effect is undone, and the form goes. A second try leads to the same page; a refusal has words."""
    place, _ = await desk.start(kind="drain", member="a")
    before = await desk.get(place)
    again, _ = await posted(desk.http, f"{place}/cancel", reason="wrong member")
    after = await desk.get(again)
    repeated, _ = await posted(desk.http, f"{place}/cancel")
    pause, _ = await desk.start(kind="pause")
    _, refusal = await posted(desk.http, f"{pause}/cancel")

    assert before.form(f"{place}/cancel") is not None
    assert again == repeated == place
    assert after.form(f"{place}/cancel") is None
    assert "Cancelled by anybody: wrong member." in after.text
    assert refusal.status == 409
    assert "not cancelled." in refusal.text


async def test_a_refusal_says_why_and_leads_back_to_the_dry_run(desk: OperationsDesk) -> None:
    """Here another operation is under way on the same streams."""
    await desk.start(kind="drain", member="a")
    place, page = await desk.start(kind="drain", member="a")

    assert (place, page.status) == ("", 409)
    assert "Drain a: nothing was done." in page.text
    assert "/console/actions/drain?member=a&group=default" in page.values("a", "href")


@pytest.mark.parametrize("fields", [{}, {"kind": "x"}, {"kind": "move", "stream": "x"}, {"kind": "drain"}])
async def test_a_form_that_is_no_operation_is_refused(desk: OperationsDesk, fields: dict[str, str]) -> None:
    """Nothing starts."""
    place, answer = await desk.start(**fields)

    assert (place, answer.status) == ("", 422)
    assert desk.world.operations.all() == []
