"""The example of docs/groups.md on real servers: two groups over five streams, one rewound from the other.

A third group follows the second. Their members are killed (SIGKILL) while fragments arrive, some in the midst
of a first commit.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from tests.e2e.fleet import SETTINGS, Fleet, fleet, new_seed
from tests.e2e.groups import kill, rewind, wrong_in
from tests.e2e.seam_judge import ANEW, GONE, judge_key, log_of
from tests.e2e.visits import Visits
from tests.waiting import until

STREAMS = 5
PER_S = 500
FIRST, SECOND = (0, 1), (10, 11, 12)
"""The members of both groups, by number."""
QUIET = msgspec.structs.replace(SETTINGS, gap_ms=8_000, lateness_ms=4_000)
"""Sessions are short, so a rewind may start far below the end."""
THIRD = 20
"""The only member of a group that follows the second one."""
CHANGES = {
    "default-2": {"max_session_fragments": 2},
    "default-3": {"gap_ms": 1_500, "max_session_fragments": 5},
}
"""Settings in which each group differs from the one that it follows: its sessions begin and end elsewhere."""


async def shares(one: Fleet, group: str) -> list[int]:
    """How many streams each member of a group has, the most first, once all are claimed."""
    names, found = one.where.names, Counter[str]()

    async def are_claimed() -> bool:
        found.clear()
        for child in await one.znodes.children(names.claims(group)):
            znode = await one.znodes.get(names.claim(group, int(child)))
            if znode is not None:
                found[json.loads(znode.data)["member"]] += 1
        members = len(FIRST if group == "default" else SECOND)
        is_even = max(found.values(), default=0) - min(found.values(), default=0) <= 1
        return found.total() == STREAMS and len(found) == members and is_even

    await until(are_claimed, lambda: f"{group}: {found}\n{one.tail()}")
    return sorted(found.values(), reverse=True)


def start(one: Fleet, index: int, crash: str | None = None) -> None:
    """Starts a member; its settings are those that control has made for its group."""
    group = "default" if index in FIRST else "default-2" if index in SECOND else "default-3"
    one.start_consumer(index, crash, group=group, **CHANGES.get(group, {}))


async def test_rewound_groups_under_kills_have_every_fragment_in_one_current_session(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """Two groups, two and three members; the second reads three of the streams again from the middle, and a
    third one follows it from below, above and beyond that. All have every fragment in exactly one current
    session, by a judge that shares no code."""
    rng = random.Random(new_seed())
    visits = Visits(rng)
    async with fleet(kafka, zookeeper, namespace, tmp_path, QUIET, streams=STREAMS) as one:
        second, third = (
            Fleet(replace(one.where, group=name), zookeeper, tmp_path, QUIET) for name in CHANGES
        )
        one.start_control()
        for index in FIRST:
            start(one, index)
        await one.write(visits, 1_000)
        ends = {n: len(await one.where.log(n)) - 1 for n in range(STREAMS)}
        await one.committed(ends)
        await one.ready("control")
        heads = await one.where.heads()

        to = {str(n): heads[n].position // 2 for n in range(3)}
        starts = await rewind(one, "default", "default-2", to=to, settings=CHANGES["default-2"])
        for index, place in zip(SECOND, ("before_commit", "after_commit", "before_offsets"), strict=True):
            start(one, index, crash=f"{place}:1:SIGKILL")

        async def kill_some() -> None:
            for index in SECOND:  # each dies in its first commit
                assert await one.consumer(index).ended() == -signal.SIGKILL, one.tail()
                start(one, index)
            await second.committed(ends)
            lower = {"0": starts[0] // 2, "1": (starts[1] + ends[1]) // 2, "3": starts[3]}
            below = await rewind(one, "default-2", "default-3", to=lower, settings=CHANGES["default-3"])
            assert below[0] < starts[0], (below, starts)
            assert starts[1] < below[1], (below, starts)
            start(one, THIRD, crash="after_commit:2:SIGKILL")
            for index in (*FIRST, rng.choice(SECOND)):
                await kill(one, index)
                start(one, index)
            assert await one.consumer(THIRD).ended() == -signal.SIGKILL, one.tail()
            start(one, THIRD)
            await asyncio.gather(*[one.ready(f"consumer-{index}") for index in (*FIRST, *SECOND, THIRD)])

        await one.write_while(kill_some(), visits, PER_S)
        assert (await shares(one, "default"), await shares(one, "default-2")) == ([3, 2], [2, 2, 1])
        await one.close_all()
        ends = {n: len(await one.where.log(n)) - 1 for n in range(STREAMS)}
        await asyncio.gather(second.committed(ends), third.committed(ends))

        assert all(0 < start < heads[n].position for n, start in enumerate(starts[:3]))
        for group in ("default", *CHANGES):
            assert await wrong_in(one, group) == [], group
        for follower in (second, third):
            assert sum(head.counts.covered for head in (await follower.where.heads()).values()) > 0
        own = await second.where.delivered()
        assert min(one.first_offset - starts[one.stream] for one in own) >= 0
        # every key has sessions of two fragments; how long those of a short gap become is chance
        assert max(one.fragments for one in own) == CHANGES["default-2"]["max_session_fragments"]
        longest = max(one.fragments for one in await third.where.delivered())
        assert longest <= CHANGES["default-3"]["max_session_fragments"]


def test_the_judge_knows_which_log_a_session_is_of() -> None:
    """By the answer of control: null, and numbers of logs. What it does not name is of none."""
    cuts: list[dict[str, Any]] = [
        {"stream": 0, "below": 5, "log": 7},
        {"stream": 1, "below": None, "log": 0},
    ]
    rows = [(0, 7, 4), (0, 7, 5), (0, 0, 9), (0, 8, 1), (1, 0, 9), (1, 3, 0)]

    found = [
        log_of({"stream": stream, "log": log, "first_offset": first}, cuts) for stream, log, first in rows
    ]

    assert found == [ANEW, None, GONE, None, GONE, None]
    assert log_of({"stream": 0}, None) == ANEW


def test_the_judge_finds_a_fragment_that_is_missing_and_one_that_is_there_twice() -> None:
    """The judge can fail."""
    log = [(n, {"id": f"i{n}"}) for n in range(4)]
    sessions = [
        {"first_offset": first, "last_offset": last, "data": [log[n][1] for n in range(first, last + 1)]}
        for first, last in ((0, 1), (2, 3))
    ]

    assert judge_key("k", log, sessions) == []
    assert len(judge_key("k", log, sessions[:1])) == 2
    assert judge_key("k", log, [*sessions, sessions[1]]) != []
    assert judge_key("k", log[:3], sessions) != []
