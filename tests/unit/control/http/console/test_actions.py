"""The pages that say what an operation would do: its dry run, its cost, and the same call elsewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.core.operations.forecasts import StreamMove
from services.control.core.report.report import report_on
from services.control.http.api.access.caller import Role
from services.control.http.console.shown.actions import curl, shares_of
from services.control.http.console.shown.scene import Scene
from shared.model.cluster import MemberNode
from shared.model.names import DEFAULT_GROUP
from tests.unit.control.http.api.access.test_roles import TOKENS, access_to
from tests.unit.control.http.console.operations_desk import DRAIN, OperationsDesk, desk_with
from tests.unit.control.operators_world import OperatorsWorld

EVIL = "<b>&'\"x"


@pytest.fixture
async def desk() -> AsyncIterator[OperationsDesk]:
    desk = await desk_with()
    async with desk.http:
        yield desk


async def test_a_dry_run_says_what_would_happen_and_does_nothing(desk: OperationsDesk) -> None:
    """What moves, what it carries, the shares before and after, and the same call for other clients."""
    page = await desk.get(DRAIN)

    assert page.status == 200
    assert "a would hand over its 3 streams with 30 open sessions (3.0 kB)" in page.text
    assert "Nothing has happened yet." in page.text
    assert "a 3 streams to none b 3 streams to 6" in page.text
    assert "baton drain a --wait" in page.text
    assert """-d '{"kind": "drain", "member": "a", "group": "default"}'""" in page.text
    assert desk.world.drain.asked == []
    assert desk.world.operations.all() == []


async def test_the_likely_pause_is_the_median_of_recent_handovers(desk: OperationsDesk) -> None:
    """Said as likely; without any handover nothing is claimed."""
    before = await desk.get(DRAIN)
    for stream, pause_ms in enumerate((40.0, 90.0, 700.0)):
        desk.handed_over(stream, "b", pause_ms)
    after = await desk.get(DRAIN)

    assert "no handover of the last hour says how long" in before.text
    assert "would likely stand still for about 90 ms ;" in after.text
    assert "90 ms longest recently 700 ms" in after.text
    assert "All of it, likely 90 ms" in after.text


async def test_a_move_from_a_silent_owner_claims_no_number_of_sessions(desk: OperationsDesk) -> None:
    """Not known is not 0: neither in the sentence nor in the table."""
    stream = desk.world.group.view.streams_of("a")[0]
    desk.world.group.silent.add("a")
    await desk.world.look()
    page = await desk.get(f"/console/actions/move?stream={stream}&to=b")

    assert "with their open sessions (how many is not known)" in page.text
    assert "0 open sessions" not in page.text
    assert "Open sessions Bytes" in page.text


async def test_draining_the_last_member_is_warned_of() -> None:
    """A member that drains already is no other one."""
    for members, is_warned in (("a", True), ("ab", False)):
        desk = await desk_with(members)
        async with desk.http:
            assert ("is the last member" in (await desk.get(DRAIN)).text) is is_warned

    desk = await desk_with()
    desk.world.group.member("b", MemberNode(address="http://b", state="draining"))
    desk.world.group.silent.add("b")  # it is its znode that says so
    await desk.world.look()
    async with desk.http:
        assert "a is the last member of group default." in (await desk.get(DRAIN)).text


async def test_a_move_that_exchanges_another_stream_says_so(desk: OperationsDesk) -> None:
    """Shares stay even, so another stream moves the other way."""
    stream = desk.world.group.view.streams_of("a")[0]
    page = await desk.get(f"/console/actions/move?stream={stream}&to=b")

    assert f"Stream {stream} would move from a to b and be pinned there" in page.text
    assert "1 other stream would move to keep shares even" in page.text
    assert f"baton move {stream} --to b --wait" in page.text


async def test_a_rebalance_says_how_many_pins_go(desk: OperationsDesk) -> None:
    """Without pins there is nothing to move."""
    stream = desk.world.group.view.streams_of("a")[0]
    desk.world.group.pin({stream: "a"})
    await desk.world.look()
    page = await desk.get("/console/actions/rebalance")

    assert "1 pin would be removed. No stream would move." in page.text


async def test_what_is_missing_is_asked_for(desk: OperationsDesk) -> None:
    """A page without a stream or member offers those that there are, and keeps what is known."""
    page = await desk.get("/console/actions/move?stream=3")
    fields = {one["name"]: one for one in page.elements["input"] if "name" in one}

    assert page.status == 200
    assert fields["stream"]["value"] == "3"
    assert "Show what would happen" in page.text
    assert "operations" not in " ".join(page.values("form", "action"))


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/console/actions/drain?member=nobody", 404),
        ("/console/actions/move?stream=99&to=a", 404),
        ("/console/actions/move?stream=x&to=a", 422),
        ("/console/actions/move?stream=-1&to=a", 422),
        ("/console/actions/explode", 422),
        ("/console/actions/rewind", 422),
        ("/console/actions/promote", 422),
        ("/console/actions/drain?group=nobody&member=a", 404),
        ("/console/operations/none", 404),
    ],
)
async def test_what_cannot_be_done_has_the_status_of_the_api(
    desk: OperationsDesk, path: str, status: int
) -> None:
    """Nothing is a 200 that did nothing, nothing is a 500."""
    assert (await desk.get(path)).status == status


async def test_what_was_asked_can_be_taken_back(desk: OperationsDesk) -> None:
    """A draining member, a pin and a pause each have a page; what is not so cannot be taken back."""
    stream = desk.world.group.view.streams_of("a")[0]
    nothing = [
        (await desk.get(path)).status
        for path in (
            "/console/actions/undrain?member=a",
            f"/console/actions/unpin?stream={stream}",
            "/console/actions/resume",
        )
    ]
    desk.world.group.pin({stream: "a"})
    await desk.world.look()
    unpin = await desk.get(f"/console/actions/unpin?stream={stream}")
    pause = await desk.get("/console/actions/pause")
    await desk.start(kind="pause", reason="upgrade")
    await desk.world.look()
    ownership, resume = await desk.get("/console/ownership"), await desk.get("/console/actions/resume")
    await desk.start(kind="drain", member="a")
    await desk.world.look()
    undrain = await desk.get("/console/actions/undrain?member=a")

    assert nothing == [409, 409, 409]
    assert f"Stream {stream} would no longer be pinned to a." in unpin.text
    assert "All members of group default would read nothing" in pause.text
    assert "anybody paused it" in ownership.text
    assert "/console/actions/resume?group=default" in ownership.values("a", "href")
    assert "The members of group default would go on" in resume.text
    assert "a would stay in the group and take streams again." in undrain.text
    assert [f"baton {word} --wait" in page.text for word, page in (("pause", pause), ("resume", resume))] == [
        True,
        True,
    ]


async def test_names_are_text_wherever_they_stand(desk: OperationsDesk) -> None:
    """In the page, in its links, and in the calls for a shell."""
    desk.world.group.member(EVIL, MemberNode(address=EVIL))
    await desk.world.look()
    for path in ("/console/actions/drain", "/console/actions/move?stream=0", "/console/ownership"):
        page = await desk.get(path if "?" in path else f"{path}?member=")
        assert EVIL in page.text
        assert "<b>&" not in page.html
    refusal = await desk.get(str(httpx.URL("/console/actions/drain", params={"member": "<i>"})))
    assert (refusal.status, "<i>" in refusal.html) == (404, False)


@pytest.mark.parametrize(
    ("role", "is_read_only", "is_shown"),
    [
        ("view", False, False),
        ("operate", False, True),
        ("admin", False, True),
        ("admin", True, False),
    ],
)
async def test_who_may_only_look_is_offered_no_act(
    tmp_path: Path, role: Role, is_read_only: bool, is_shown: bool
) -> None:
    """Buttons and forms are absent, and for everybody if control is read-only; the calls stay."""
    access = await access_to(tmp_path, is_read_only=is_read_only)
    desk = await desk_with(access=access, token=TOKENS[role])
    async with desk.http:
        drain, ownership, stream, jobs = [
            await desk.get(path)
            for path in (
                *(DRAIN, "/console/ownership", "/console/streams/0"),
                "/console/actions/run?job=lake",
            )
        ]

    assert ("reason" in drain.values("input", "name")) is is_shown
    assert ("This control is read-only." in drain.text) is is_read_only
    assert "baton drain a --wait" in drain.text
    assert 'curl -H "Authorization: Bearer $BATON_TOKEN" -X POST "$BATON_URL/operations"' in drain.text
    for page in (ownership, stream):
        assert any("/console/actions/" in link for link in page.values("a", "href")) is is_shown
    assert ("Run lake" in " ".join(re.findall("<button[^>]*>([^<]*)", jobs.html))) is is_shown


async def test_maintenance_is_for_administrators(tmp_path: Path) -> None:
    """It deletes files of the lake."""
    for role in ("operate", "admin"):
        desk = await desk_with(access=await access_to(tmp_path), token=TOKENS[role])
        async with desk.http:
            jobs = await desk.get("/console/jobs")
        links = [link for link in jobs.values("a", "href") if "job=maintain" in link]
        assert bool(links) is (role == "admin")


@given(st.text(max_size=30))
def test_a_call_survives_every_shell(text: str) -> None:
    """The body is one word of the shell, whatever it holds."""
    line = curl("POST", "/operations", {"member": text})
    words = shlex.split(line.replace("\\\n", " "))

    assert words[:3] == ["curl", "-X", "POST"]
    assert len(words) == 8


@given(st.integers(0, 12), st.integers(1, 4), st.data())
def test_shares_add_up_to_all_streams(count: int, members: int, data: st.DataObject) -> None:
    """Before and after the moves: none is lost, none is counted twice."""
    world = OperatorsWorld(count=count, members="abcd"[:members])
    names = st.sampled_from("abcd"[:members])
    moves = [
        StreamMove(stream=n, source=world.group.owner(n), to=data.draw(names), sessions=0, bytes=0)
        for n in range(count)
        if data.draw(st.booleans())
    ]
    shares = shares_of(scene_in(world), [move for move in moves if move.source != move.to])

    assert sum(share.stay + share.go for share in shares) == count
    assert sum(share.stay + share.come for share in shares) == count


def scene_in(world: OperatorsWorld) -> Scene:
    """The scene of the world's group."""
    report = report_on(world.group.observed, {})
    return Scene(
        group=DEFAULT_GROUP,
        rows=report.streams[DEFAULT_GROUP],
        members=report.members,
        plan=report.plans[DEFAULT_GROUP],
        now_ms=0,
        stale_ms=0,
    )
