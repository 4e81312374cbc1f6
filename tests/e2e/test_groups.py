"""The example of docs/groups.md on real servers: two groups over five streams, one rewound from the other.

Their members are killed (SIGKILL) while fragments arrive, some in the midst of a first commit.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec

from tests.e2e.current import ask, wrong_in
from tests.e2e.fleet import SETTINGS, Fleet, fleet, new_seed
from tests.e2e.visits import Visits
from tests.waiting import until

STREAMS = 5
PER_S = 500
FIRST, SECOND = (0, 1), (10, 11, 12)
"""The members of both groups, by number."""
QUIET = msgspec.structs.replace(SETTINGS, gap_ms=8_000, lateness_ms=4_000)
"""Sessions are short, so a rewind may start far below the end."""
LIMIT = 2
"""The second group's limit on the fragments of a session: its sessions end elsewhere."""


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


def start_second(one: Fleet, index: int, crash: str | None = None) -> None:
    """Starts a member of the second group; its settings are those that control has made."""
    one.start_consumer(index, crash, group="default-2", max_session_fragments=LIMIT)


async def kill(one: Fleet, index: int) -> None:
    """SIGKILL, and its end."""
    one.consumer(index).signal(signal.SIGKILL)
    await one.consumer(index).ended()


async def test_a_rewound_group_under_kills_has_every_fragment_in_one_current_session(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """Two groups, two and three members; the second reads three of the streams again from the middle. Both
    have every fragment in exactly one current session, by a judge that shares no code."""
    rng = random.Random(new_seed())
    visits = Visits(rng)
    async with fleet(kafka, zookeeper, namespace, tmp_path, QUIET, streams=STREAMS) as one:
        one.start_control()
        for index in FIRST:
            one.start_consumer(index)
        await one.write(visits, 1_000)
        await one.committed({n: len(await one.where.log(n)) - 1 for n in range(STREAMS)})
        await one.ready("control")
        heads = await one.where.heads()
        wish = {
            "kind": "rewind",
            "as": "default-2",
            "to": {str(n): heads[n].position // 2 for n in range(3)},
            "settings": {"max_session_fragments": LIMIT},
        }
        dry = await ask(one, "POST", "/operations", **wish, dry_run=True)
        assert dry.status_code == 200, dry.text
        shown = dry.json()

        made = await ask(one, "POST", "/operations", **wish, if_plan=shown["plan"])

        assert (made.status_code, made.json()["state"]) == (202, "done"), made.text
        for index, place in zip(SECOND, ("before_commit", "after_commit", "before_offsets"), strict=True):
            start_second(one, index, crash=f"{place}:1:SIGKILL")

        async def kill_some() -> None:
            for index in SECOND:  # each dies in its first commit
                assert await one.consumer(index).ended() == -signal.SIGKILL, one.tail()
                start_second(one, index)
            for index in (*FIRST, rng.choice(SECOND)):
                await kill(one, index)
                one.start_consumer(index) if index in FIRST else start_second(one, index)
            await asyncio.gather(*[one.ready(f"consumer-{index}") for index in (*FIRST, *SECOND)])

        await one.write_while(kill_some(), visits, PER_S)
        assert (await shares(one, "default"), await shares(one, "default-2")) == ([3, 2], [2, 2, 1])
        await one.close_all()
        second = Fleet(replace(one.where, group="default-2"), zookeeper, tmp_path, QUIET)
        await second.committed({n: len(await one.where.log(n)) - 1 for n in range(STREAMS)})

        starts = [row["start"] for row in shown["streams"]]
        assert all(0 < start < heads[n].position for n, start in enumerate(starts[:3]))
        assert await wrong_in(one, "default") == []
        assert await wrong_in(one, "default-2") == []
        assert sum(head.counts.covered for head in (await second.where.heads()).values()) > 0
        own = await second.where.delivered()
        assert min(one.first_offset - starts[one.stream] for one in own) >= 0
        assert max(one.fragments for one in own) == LIMIT


def test_the_judge_finds_a_fragment_that_is_missing_and_one_that_is_there_twice() -> None:
    """The judge can fail."""
    from tests.e2e.seam_judge import judge_key

    log = [(n, {"id": f"i{n}"}) for n in range(4)]
    sessions = [
        {"first_offset": first, "last_offset": last, "data": [log[n][1] for n in range(first, last + 1)]}
        for first, last in ((0, 1), (2, 3))
    ]

    assert judge_key(0, "k", log, sessions) == []
    assert len(judge_key(0, "k", log, sessions[:1])) == 2
    assert judge_key(0, "k", log, [*sessions, sessions[1]]) != []
    assert judge_key(0, "k", log[:3], sessions) != []
