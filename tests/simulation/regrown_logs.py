"""Logs that lose their end and grow past it again, and the operator who starts their streams over.

An owner that had committed what is gone must stop its stream. The operator does what docs/operations.md says:
stops all members, deletes what is stored of the stream, and starts them. From there on the stream's log has
another number, which is part of every session's id. `schedule.py` draws the losses, `verdict.py` judges.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from shared.model.head import Head
from shared.model.sessions import session_id
from tests.reference import fold_eagerly
from tests.simulation.world import GROUP, World

MOST_LOSSES = 2
Row = tuple[Any, ...]


class RegrownLogs:
    """What befalls the logs of one run. `fragment()`: the fields of a fragment that is written anew."""

    def __init__(self, world: World, rng: random.Random, fragment: Callable[[], dict[str, Any]]) -> None:
        self._world, self._rng, self._fragment = world, rng, fragment

    def regrow(self, place: tuple[int, int] | None = None) -> None:
        """A log loses its end, and more is written than was lost before anyone looks.

        `place`: which log, and from which offset on.
        """
        world, rng = self._world, self._rng
        stream = rng.randrange(world.streams) if place is None else place[0]
        stored = world.broker.stored(stream)
        if not stored.log or len(world.regrown) == MOST_LOSSES:
            return
        keep, end = rng.randrange(len(stored.log)) if place is None else place[1], stored.end
        world.trace.note("", "log loses its end", stream, f"from {keep} of {end}")
        number = stored.head.log if stored.head is not None else stored.first_record
        world.regrown.append((stream, number, list(stored.log)))
        # such a loss takes seconds, so no record gets the append time of the one whose offset it has
        at_ms = max(world.wall_ms(), max(record.timestamp for record in stored.log) + 1)
        world.broker.lose_end(stream, keep)
        for _ in range(end - keep + rng.randint(1, 5)):
            world.append(stream, self._fragment(), at_ms)

    def find_parts(self, heads: Mapping[int, Head]) -> tuple[int, int] | None:
        """A stream and its position, at a marker, if a commit since these heads has not passed the marker."""
        for stream, before in heads.items():
            stored = self._world.broker.stored(stream)
            at = before.position - stored.first
            if (
                stored.head is not None
                and stored.head.seq > before.seq
                and stored.head.position == before.position
                and 0 <= at < len(stored.log)
                and stored.log[at].key is None
            ):
                return stream, before.position
        return None

    def start_over(self) -> None:
        """The operator looks: if streams are in state `rewind`, stops all members and starts them over."""
        world = self._world
        processes = list(world.processes.values())
        regrown = {stream for stream, _, _ in world.regrown}
        stopped = {
            worker.stream
            for process in processes
            if process.member is not None
            for worker in process.member.workers
            if worker.state == "rewind" and worker.stream in regrown
        }
        if not stopped:
            return
        for process in processes:
            world.kill(process, "is stopped by the operator")
        for stream in sorted(stopped):
            world.trace.note("", "log is started over", stream)
            world.broker.start_over(stream)
        for process in processes:
            world.start(process.member_id)


def judge_ids(world: World, delivered: list[tuple[str, int, Row]]) -> Iterator[str]:
    """Ids that are not their session's, or two sessions'; `delivered`: id, number of the log, row."""
    rows: dict[str, Row] = {}
    for name, log, row in delivered:
        stream, key, first = row[:3]
        if name != session_id(GROUP, stream, key, first, log):
            yield f"not the id of log {log}: {name} of {row}"
        # at_least_once may deliver a session, fail to commit it, and find that it became another one
        if rows.setdefault(name, row) != row and world.delivery != "at_least_once":
            yield f"one id for two sessions: {row} and {rows[name]}"


def rows_of_regrown(world: World, number_of: Callable[[int], int]) -> tuple[Counter[Row], Counter[Row]]:
    """What may have been delivered from logs as they were before, each session once, with the log's number.

    First those of streams that were started over, then those of streams whose log kept its number
    (`number_of`), because nothing committed was lost.
    """
    earlier: Counter[Row] = Counter()
    same: Counter[Row] = Counter()
    for stream, number, log in world.regrown:
        closed, _ = fold_eagerly(log, world.settings)
        found = Counter((number, stream, *session.row()) for session in closed)
        if number == number_of(stream):
            same |= found
        else:
            earlier |= found
    return earlier, same
