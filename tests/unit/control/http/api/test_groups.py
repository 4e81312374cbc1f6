"""Rewind, promote and delete over HTTP, in process, over groups in a ZooKeeper in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from services.control.core.groups.rewinds import StreamFacts
from services.control.core.report.observed import Offsets
from services.control.core.runs.jobs import JOBS
from services.control.live.runs.submissions import submission_for
from shared.model.group import GroupSettings, parse_group_settings
from shared.model.head import Head
from shared.model.start import MAX_CHAIN, Cut, GroupStart, parse_start
from shared.zookeeper.group_chain import read_chain
from tests.unit.control.groups_world import NAMES, GroupsWorld
from tests.unit.control.sources import head

REWIND: dict[str, Any] = {"kind": "rewind", "as": "default-2"}


def facts(*, position: int = 100, oldest: int | None = -1, number: int = 0, **more: Any) -> StreamFacts:
    """A log of 120 records, read up to `position` by the followed group."""
    found = Head(epoch=1, seq=1, position=position, safe_offset=0, oldest=oldest, log=number)
    return replace(StreamFacts(first=0, end=120, head=found), **more)


@pytest.fixture
async def world() -> GroupsWorld:
    world = GroupsWorld()
    await world.fill()
    world.rewinds.streams = {0: facts(), 1: facts(oldest=40)}
    return world


async def test_a_dry_run_shows_each_start_and_why_it_is_lower(world: GroupsWorld) -> None:
    """Everything below a start is delivered: at most the oldest open session, or the position. It makes
    nothing."""
    answer = await world.post(**REWIND, to={"0": 110, "1": 60}, dry_run=True)

    assert answer.status_code == 200
    rows = answer.json()["streams"]
    assert [(row["start"], row["records"], row["taken"], row["why"]) for row in rows] == [
        (100, 20, 0, "default has read so far"),
        (40, 80, 0, "the session that began at 40 is open"),
    ]
    assert answer.json()["records"] == 100
    assert await world.zookeeper.children(NAMES.groups) == ["default"]


async def test_a_rewind_makes_a_group_with_its_settings_and_start(world: GroupsWorld) -> None:
    """It has the followed group's settings but for those that were given; idle stays gap and lateness."""
    world.rewinds.streams[1] = facts(oldest=40, number=52, first=30)
    before = GroupSettings(gap_ms=1_000, idle_ms=301_000)
    await world.zookeeper.set(NAMES.group("default"), before.encode())
    await world.view.step()

    answer = await world.post(**REWIND, settings={"gap_ms": 2_000}, reason="too short")

    assert answer.status_code == 202
    assert (answer.json()["state"], answer.json()["to"]) == ("done", "default-2")
    znode, start = [
        await world.zookeeper.get(path) for path in (NAMES.group("default-2"), NAMES.start("default-2"))
    ]
    assert znode is not None
    assert start is not None
    assert parse_group_settings(znode.data) == GroupSettings(gap_ms=2_000, idle_ms=302_000)
    assert parse_start(start.data) == GroupStart(
        follows="default", offsets={0: 0, 1: 30}, logs={1: 52}, appended={1: 1_030}
    )
    assert [(event.kind, event.what, event.why) for event in world.events] == [
        ("action", "rewind to default-2", "too short")
    ]


async def test_what_was_made_is_served_at_once(world: GroupsWorld) -> None:
    """A script that rewinds, promotes and deletes need not wait for control to look again."""
    http = world.http
    await http.post("/operations", json=REWIND)
    assert (await http.get("/groups/default-2/current")).json()["follows"] == ["default"]

    await http.post("/operations", json={"kind": "promote", "group": "default-2", "alias": "live"})
    assert (await http.get("/groups/live/current")).json()["group"] == "default-2"

    await http.post("/operations", json={"kind": "promote", "group": "default", "alias": "live"})
    assert (await http.delete("/groups/default-2")).status_code == 200
    assert (await http.get("/groups/default-2/current")).status_code == 404


async def test_a_promotion_and_a_deletion_are_events(world: GroupsWorld) -> None:
    """Who did it, and why; what was refused is none."""
    await world.post(**REWIND)
    await world.post(kind="promote", group="default-2", alias="live", reason="it has caught up")
    refused = await world.delete("default-2", "not needed")
    await world.post(kind="promote", group="default", alias="live", reason="back")
    deleted = await world.delete("default-2", "not needed")

    assert (refused.status_code, deleted.status_code) == (409, 200)
    assert [(one.kind, one.group, one.who, one.what, one.why) for one in world.events[1:]] == [
        ("action", "default-2", "anybody", "promote to live", "it has caught up"),
        ("action", "default", "anybody", "promote to live", "back"),
        ("action", "default-2", "anybody", "delete group default-2", "not needed"),
    ]


@pytest.mark.parametrize(
    ("act", "what"),
    [
        ({"kind": "rewind", "as": "third"}, "rewind to third"),
        ({"kind": "promote", "group": "default-2", "alias": "live"}, "promote to live"),
        ({}, "delete group default-2"),
    ],
)
async def test_what_may_have_been_done_to_a_group_is_an_event(
    world: GroupsWorld, act: dict[str, Any], what: str
) -> None:
    """ZooKeeper has done it, and its answer was lost."""
    await world.post(**REWIND)
    world.zookeeper.lose_answers = 1
    answer = await world.post(**act) if act else await world.delete("default-2")

    assert answer.status_code == 503
    (event,) = world.events[1:]
    assert event.what.startswith(f"{what}, without an answer: ")


async def test_a_repeated_request_makes_one_group(world: GroupsWorld) -> None:
    """Under one Idempotency-Key, the second answer is the first operation."""
    first, at_once = await asyncio.gather(*(world.post(key="k", **REWIND) for _ in range(2)))
    second = await world.post(key="k", **REWIND)

    assert first.json()["id"] == at_once.json()["id"] == second.json()["id"]
    assert (await world.post(**REWIND)).status_code == 409


async def test_only_the_plan_that_was_shown_is_carried_out(world: GroupsWorld) -> None:
    """`if_plan` holds while the starts are the same, though the log has grown."""
    plan = (await world.post(**REWIND, to="latest", dry_run=True)).json()["plan"]
    world.rewinds.streams[0] = facts(end=500)
    grown = (await world.post(**REWIND, to="latest", dry_run=True)).json()["plan"]
    world.rewinds.streams[0] = facts(position=110)

    answer = await world.post(**REWIND, to="latest", if_plan=plan)

    assert grown == plan
    assert (answer.status_code, answer.json()["plan"] != plan) == (409, True)


async def test_a_promotion_needs_the_plan_that_was_shown(world: GroupsWorld) -> None:
    """`if_plan` holds while the alias names the same group as in the dry run."""
    promotion = {"kind": "promote", "group": "default", "alias": "live"}
    await world.post(**REWIND)
    shown = (await world.post(**promotion, dry_run=True)).json()["plan"]
    await world.post(**(promotion | {"group": "default-2"}))
    now = (await world.post(**promotion, dry_run=True)).json()["plan"]

    refused = await world.post(**promotion, if_plan=shown)
    accepted = await world.post(**promotion, if_plan=now)

    assert (refused.status_code, refused.json()["type"]) == (409, "urn:baton:plan-changed")
    assert refused.json()["plan"] == now != shown
    assert accepted.status_code == 202


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (facts(oldest=40, first=50), "retention has removed records from 40 to 50"),
        (facts(oldest=None), "did not say what is open"),
        (facts(unreadable="carries no head"), "carries no head"),
        (facts(log="cut"), "lost its end"),
    ],
    ids=["retention", "an old head", "no head", "a log without its end"],
)
async def test_a_rewind_that_would_miss_or_double_fragments_is_refused(
    world: GroupsWorld, stream: StreamFacts, why: str
) -> None:
    """A group that is alone may start all the same: nothing of others is current in it."""
    world.rewinds.streams[1] = stream

    refused = await world.post(**REWIND)
    alone = await world.post(**REWIND, alone=True)

    assert (refused.status_code, why in refused.json()["detail"]) == (409, True)
    assert alone.status_code == 202
    assert [one.follows for one in await read_chain(world.zookeeper, NAMES, "default-2")] == [None]


async def test_sessions_that_retention_took_refuse_a_start_that_they_may_reach(world: GroupsWorld) -> None:
    """Where the followed group has read to, none of its sessions reaches."""
    world.rewinds.cut = {"default"}
    world.rewinds.streams[1] = facts()

    low = await world.post(**REWIND, to="earliest", dry_run=True)
    high = await world.post(**REWIND, to="latest", dry_run=True)

    assert (low.status_code, high.status_code) == (409, 200)
    assert "retention has removed sessions of 'default'" in low.json()["detail"]


async def test_sessions_of_groups_before_reach_beyond_what_the_followed_one_has_read(
    world: GroupsWorld,
) -> None:
    """Those that began below its start were delivered before it began, and may be longer than it has read."""
    await world.post(**REWIND, to={"0": 70, "1": 30})
    world.rewinds.streams = {0: facts(before=70), 1: StreamFacts(first=0, end=120, before=30)}
    world.rewinds.cut = {"default"}

    answer = await world.post(kind="rewind", group="default-2", to="latest", **{"as": "third"})

    assert answer.status_code == 409
    assert "sessions of 'default' that may reach offset" in answer.json()["detail"]
    assert world.rewinds.looked == {Cut("default", 70), Cut("default", 30)}


async def test_sessions_are_looked_for_in_the_log_that_the_followed_group_reads(world: GroupsWorld) -> None:
    """After it was told to start over, those of the log before do not count as the first that is left."""
    world.rewinds.streams = {0: facts(number=52), 1: facts()}

    answer = await world.post(**REWIND, to={"0": 50})

    assert answer.status_code == 202
    assert world.rewinds.looked == {Cut("default", 50, 52)}


async def test_retention_raises_a_start_and_says_what_it_took(world: GroupsWorld) -> None:
    """What is gone cannot be read again; it stays in the followed group's sessions."""
    world.rewinds.streams[0] = facts(first=30)

    rows = (await world.post(**REWIND, to={"0": 10}, dry_run=True)).json()["streams"]

    assert (rows[0]["start"], rows[0]["taken"], rows[0]["why"]) == (
        30, 20, "retention has removed 20 records"
    )  # fmt: skip


async def test_where_nothing_is_open_a_group_starts_with_what_retention_left(world: GroupsWorld) -> None:
    """Nobody will read what is gone; so it is with a followed group that has not begun."""
    world.rewinds.streams = {0: facts(position=20, first=30), 1: StreamFacts(first=30, end=120)}

    rows = (await world.post(**REWIND, to="latest", dry_run=True)).json()["streams"]

    assert [row["start"] for row in rows] == [30, 30]


async def test_a_lost_log_is_followed_from_the_start_of_the_new_one(world: GroupsWorld) -> None:
    """REWIND ends by `latest`: all sessions of the old log stay, and all of the new log is read."""
    world.rewinds.streams[0] = facts(end=7, log="anew")

    await world.post(**REWIND, to="latest")

    (start,) = await read_chain(world.zookeeper, NAMES, "default-2")
    assert start.offsets == {0: None, 1: 40}
    cuts = (await world.current("default-2"))["current"][1]["cuts"]
    assert [cut["below"] for cut in cuts] == [None, 40]


async def test_streams_that_are_not_named_start_at_latest(world: GroupsWorld) -> None:
    """Only what is asked for is read again."""
    answer = await world.post(**REWIND, to="earliest", streams=[1], dry_run=True)

    assert [row["start"] for row in answer.json()["streams"]] == [100, 0]


async def test_a_time_is_looked_up_in_each_log(world: GroupsWorld) -> None:
    """The first record that is not older; no such record means the latest start."""
    world.rewinds.streams = {0: facts(at=25), 1: facts()}

    rows = (await world.post(**REWIND, to="1970-01-01T00:00:09Z", dry_run=True)).json()["streams"]

    assert world.rewinds.asked == [9_000]
    assert [row["start"] for row in rows] == [25, 100]


@pytest.mark.parametrize(
    "wish",
    [
        {"as": "default"},
        {"as": "NO"},
        {"streams": [2]},
        {"to": {"2": 1}},
        {"to": {"x": 1}},
        {"to": {"0": -1}},
        {"to": "yesterday"},
        {"to": "2026-11-23T12:00:00"},
        {"to": -1},
        {"to": 2**63},
        {"settings": {"gap": 1}},
        {"settings": {"gap_ms": "x"}},
        {"settings": {"gap_ms": 0}},
        {"settings": {"max_session_bytes": 2_000_000}},
    ],
)
async def test_what_cannot_be_meant_is_refused(world: GroupsWorld, wish: dict[str, Any]) -> None:
    """Unknown streams, names, times and settings."""
    assert (await world.post(**(REWIND | wish), dry_run=True)).status_code == 422


async def test_a_name_that_was_used_is_not_used_again(world: GroupsWorld) -> None:
    """Its sessions and checkpoints in Kafka would be taken for the new group's."""
    world.rewinds.used = {"default-2"}

    answer = await world.post(**REWIND)

    assert (answer.status_code, "was a group" in answer.json()["detail"]) == (409, True)


async def test_a_chain_of_groups_has_an_end(world: GroupsWorld) -> None:
    """Members refuse longer ones as circles, so control makes none."""
    for n in range(MAX_CHAIN + 1):
        answer = await world.post(kind="rewind", group=f"g{n - 1}" if n else "default", **{"as": f"g{n}"})
        world.rewinds.streams = {}
        if answer.status_code != 202:
            break

    assert (n, answer.status_code) == (MAX_CHAIN, 409)
    assert "follow each other" in answer.json()["detail"]


async def test_the_name_of_an_alias_is_not_given_to_a_group(world: GroupsWorld) -> None:
    """Nobody would find that group."""
    await world.post(kind="promote", group="default", alias="live")

    answer = await world.post(kind="rewind", **{"as": "live"})

    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (409, "name-taken")


async def test_a_group_without_a_head_is_followed_in_the_log_that_it_would_read(world: GroupsWorld) -> None:
    """After it was told to start over, all sessions of the log before are complete."""
    world.rewinds.streams = {0: StreamFacts(first=0, end=9, number=52), 1: StreamFacts(first=0, end=9)}

    await world.post(**REWIND)

    (start,) = await read_chain(world.zookeeper, NAMES, "default-2")
    assert (start.offsets, start.logs) == ({0: 0, 1: 0}, {0: 52})


async def test_a_start_does_not_count_in_a_log_that_came_after_it(world: GroupsWorld) -> None:
    """A group that was told to start over has not read what lies below the start that it once had."""
    await world.post(**REWIND, to={"0": 70, "1": 30})
    world.rewinds.streams = {
        0: StreamFacts(first=0, end=500, before=70, number=52),
        1: StreamFacts(first=0, end=500, before=30),
    }

    answer = await world.post(kind="rewind", group="default-2", to="latest", dry_run=True, **{"as": "third"})

    assert [row["start"] for row in answer.json()["streams"]] == [0, 30]


async def test_a_group_that_begins_beyond_the_end_of_a_log_is_not_followed(world: GroupsWorld) -> None:
    """It has read nothing that would show whether the log was lost."""
    await world.post(**REWIND, to={"0": 70, "1": 30})
    world.rewinds.streams = {
        0: StreamFacts(first=0, end=5, before=70),
        1: StreamFacts(first=0, end=120, before=30),
    }

    answer = await world.post(kind="rewind", group="default-2", **{"as": "third"})

    assert (answer.status_code, "the log ends at 5" in answer.json()["detail"]) == (409, True)


async def test_current_are_the_own_sessions_and_those_below_every_start_on_the_way(
    world: GroupsWorld,
) -> None:
    """For a chain of three; as SQL too."""
    await world.post(**REWIND, to={"0": 70, "1": 30})
    world.rewinds.streams = {0: facts(before=70), 1: facts(before=30)}
    await world.post(kind="rewind", group="default-2", to={"0": 90, "1": 20}, **{"as": "third"})

    answer = await world.current("third")

    assert answer["follows"] == ["default-2", "default"]
    assert [(one["group"], one["topic"]) for one in answer["current"]] == [
        ("third", "sessions.third"), ("default-2", "sessions.default-2"), ("default", "sessions")
    ]  # fmt: skip
    assert [[cut["below"] for cut in one["cuts"]] for one in answer["current"][1:]] == [[90, 20], [70, 20]]
    assert (
        "\"group\" = 'default' AND (stream = 0 AND coalesce(log, 0) = 0 AND first_offset < 70"
        in answer["sql"]
    )
    assert (await world.current("default"))["followers"] == ["default-2"]


async def test_an_alias_is_given_once_the_group_has_caught_up(world: GroupsWorld) -> None:
    """409 while a stream has not read as far as the other group's safe offset."""
    await world.post(**REWIND)
    behind = {"default": {0: head(100), 1: head(100)}, "default-2": {0: head(100), 1: head(99)}}
    ends = {0: 120, 1: 120}
    world.offsets.offsets = Offsets(end=ends, heads=behind)
    await world.view.step()
    early = await world.post(kind="promote", group="default-2", alias="default")
    world.offsets.offsets = Offsets(end=ends, heads=behind | {"default-2": {0: head(100), 1: head(100)}})
    await world.view.step()

    late = await world.post(kind="promote", group="default-2", alias="default")

    assert (early.status_code, late.status_code) == (409, 202)
    assert "stream 1 has read to 99" in early.json()["detail"]
    assert (await world.current("default"))["group"] == "default-2"


async def test_a_lost_log_does_not_keep_a_group_from_its_name(world: GroupsWorld) -> None:
    """The other group's safe offset lies above the end of the log that is there; its end is enough."""
    await world.post(**REWIND)
    heads = {"default": {0: head(100), 1: head(100)}, "default-2": {0: head(7), 1: head(100)}}
    world.offsets.offsets = Offsets(end={0: 7, 1: 120}, heads=heads)
    await world.view.step()

    answer = await world.post(kind="promote", group="default-2", alias="default")

    assert answer.status_code == 202


async def test_in_a_log_that_was_made_anew_there_is_nothing_to_catch_up_with(world: GroupsWorld) -> None:
    """A group that reads a busy log is never quite at its end."""
    world.rewinds.streams[0] = facts(end=7, log="anew")
    await world.post(**REWIND, to="latest")
    heads = {"default": {0: head(100), 1: head(100)}, "default-2": {0: head(50), 1: head(100)}}
    world.offsets.offsets = Offsets(end={0: 60, 1: 120}, heads=heads)
    await world.view.step()

    answer = await world.post(kind="promote", group="default-2", alias="default")

    assert answer.status_code == 202


async def test_an_alias_may_be_given_twice_and_back(world: GroupsWorld) -> None:
    """Once more is the same; a group that gets its own name back has no alias any more."""
    await world.post(**REWIND)
    for _ in range(2):
        assert (await world.post(kind="promote", group="default-2", alias="default")).status_code == 202
    assert (await world.current("default-2"))["aliases"] == ["default"]

    back = await world.post(kind="promote", group="default", alias="default")

    assert back.status_code == 202
    assert (await world.current("default"))["group"] == "default"
    assert (await world.current("default"))["aliases"] == []


async def test_names_that_name_each_other_are_no_circle(world: GroupsWorld) -> None:
    """An alias names a group, never another alias."""
    await world.post(**REWIND)
    await world.post(kind="promote", group="default-2", alias="default")
    await world.post(kind="promote", group="default", alias="default-2")

    found = [(await world.current(name))["group"] for name in ("default", "default-2")]

    assert found == ["default-2", "default"]


async def test_a_group_in_use_is_not_deleted(world: GroupsWorld) -> None:
    """In use by members, by an alias, by a follower; then it goes with everything below its znode."""
    await world.post(**REWIND)
    followed = await world.delete("default")
    await world.join("default-2", "m")
    joined = await world.delete("default-2")
    await world.zookeeper.delete(NAMES.member("default-2", "m"))
    await world.post(kind="promote", group="default-2", alias="live")
    named = await world.delete("default-2")
    await world.post(kind="promote", group="default", alias="live")

    deleted = await world.delete("default-2")
    last = await world.delete("default")

    assert [answer.status_code for answer in (followed, joined, named)] == [409, 409, 409]
    assert "followed by default-2" in followed.json()["detail"]
    assert "has members: m" in joined.json()["detail"]
    assert "has the alias 'live'" in named.json()["detail"]
    assert (deleted.status_code, last.status_code) == (200, 409)
    assert await world.zookeeper.children(NAMES.groups) == ["default"]


async def test_a_group_that_got_a_follower_meanwhile_is_not_deleted(world: GroupsWorld) -> None:
    """A deletion that looked before the follower was made fails, because that wrote the group's znode."""
    there = await world.zookeeper.get(NAMES.group("default"))
    await world.post(**REWIND)
    now = await world.zookeeper.get(NAMES.group("default"))

    assert there is not None
    assert now is not None
    assert (now.version, now.data) == (there.version + 1, there.data)


async def test_a_group_that_got_its_first_alias_meanwhile_is_not_deleted(world: GroupsWorld) -> None:
    """A deletion that looked before there was any alias fails, because naming wrote the group's znode."""
    await world.post(**REWIND)
    there = await world.zookeeper.get(NAMES.group("default-2"))
    await world.post(kind="promote", group="default-2", alias="live")
    now = await world.zookeeper.get(NAMES.group("default-2"))

    assert there is not None
    assert now is not None
    assert (now.version, now.data) == (there.version + 1, there.data)


async def test_operations_on_groups_are_listed_and_over(world: GroupsWorld) -> None:
    """Like all others; they cannot be cancelled."""
    operation = (await world.post(**REWIND, reason="why")).json()

    listed = (await world.http.get("/operations")).json()["operations"]
    cancelled = await world.http.delete(f"/operations/{operation['id']}")

    assert [(one["kind"], one["to"], one["reason"]) for one in listed] == [("rewind", "default-2", "why")]
    assert cancelled.status_code == 409


@pytest.mark.parametrize("job", list(JOBS))
async def test_a_job_for_an_alias_works_for_its_group_from_its_start(world: GroupsWorld, job: str) -> None:
    """The run has the settings and the chain of the group that the alias names: lake, reports, audit, all."""
    await world.post(**REWIND, settings={"gap_ms": 9}, to={"0": 3, "1": 4})
    await world.post(kind="promote", group="default-2", alias="default")

    submission = submission_for(world.view, job, "default", {})

    assert (submission.job, submission.group, submission.settings.gap_ms) == (job, "default-2", 9)
    assert [(start.follows, start.offsets) for start in submission.chain] == [("default", {0: 3, 1: 4})]
