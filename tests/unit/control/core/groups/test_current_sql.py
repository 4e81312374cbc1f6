"""The query that control prints returns the current sessions, and no others."""

from __future__ import annotations

import random

import duckdb

from services.control.core.groups.following import current_in
from shared.model.names import Names
from shared.model.start import Cut, GroupStart, cuts_of
from tests.effort import effort

STREAMS = 3
ROWS = [
    (group, stream, first, log)
    for group in ("a", "b", "c", "other")
    for stream in range(STREAMS)
    for first in (0, 5, 6, 40)
    for log in (None, 0, 7, 9)
]
"""Sessions of the lake: group, stream, first offset and log; older rows have none."""


def random_chain(rng: random.Random) -> list[GroupStart]:
    """The group c follows b, which follows a, from anywhere."""
    return [
        GroupStart(
            follows=followed,
            offsets={n: rng.choice([None, 0, 5, 6, 39, 100]) for n in range(STREAMS)},
            logs={n: log for n in range(STREAMS) if (log := rng.choice([0, 7, 9]))},
        )
        for followed in ("b", "a")
    ]


def is_current(row: tuple[str, int, int, int | None], cuts: dict[int, list[Cut]]) -> bool:
    """Whether the session is one of c, or one of another group below its cut."""
    group, stream, first, log = row
    own = group == "c"
    return own or any(cut.group == group and cut.holds(first, log or 0) for cut in cuts[stream])


def test_the_query_returns_what_is_current() -> None:
    """Over a chain of groups, with logs that were lost and started over."""
    lake = duckdb.connect()
    lake.execute('CREATE TABLE sessions ("group" TEXT, stream BIGINT, first_offset BIGINT, log BIGINT)')
    lake.executemany("INSERT INTO sessions VALUES (?, ?, ?, ?)", ROWS)
    for seed in range(effort(50)):
        chain = random_chain(random.Random(seed))
        cuts = {stream: cuts_of(chain, stream) for stream in range(STREAMS)}

        sql = current_in("c", chain, STREAMS, Names(), starts={}, aliases={}).sql

        found = lake.execute(sql).fetchall()
        key = str
        assert sorted(found, key=key) == sorted((row for row in ROWS if is_current(row, cuts)), key=key), seed
