"""What must hold after a run: a quiet group, and each session once, as the eager fold of the log gives it.

What must hold at each commit is checked where it happens (`InMemoryLog`, `World.check_claim`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec import DecodeError

from services.consumer.core.commits.checkpoint import new_stream
from shared.model.sessions import parse_session
from tests.fakes.log import StoredStream
from tests.reference import delivered_row, fold_eagerly
from tests.simulation.process import Process
from tests.simulation.regrown_logs import judge_ids, rows_of_regrown
from tests.simulation.world import World

Row = tuple[Any, ...]
MOST_FENCES, FENCES_WITHIN_S = 20, 3.0
"""Each claim begins with short pauses, so a few in a row are good."""


def judge(world: World) -> Iterator[str]:
    """What is wrong, in sentences; nothing for a good run."""
    yield from world.wrong
    yield from world.broker.wrong
    yield from hammered(world)
    delivered = list(_delivered(world))
    yield from judge_ids(world, delivered)
    expected, found = Counter(_expected(world)), Counter((log, *row) for _, log, row in delivered)
    if world.delivery == "at_least_once":
        found = Counter(set(found))
    earlier, same = rows_of_regrown(world, partial(_number, world))
    found -= earlier  # they may have been delivered, or not
    if world.delivery != "at_most_once":
        yield from (f"missing: {row}" for row in (expected - found).elements())
    if world.delivery == "at_least_once":
        found -= same  # delivered, and lost before the commit
    yield from (
        f"delivered, but not so or not so often in the log: {row}" for row in (found - expected).elements()
    )


def shares(world: World) -> list[list[int]]:
    """The streams that each process runs, as far as they are read."""
    read = {"running", "rewind"} if world.lost else {"running"}
    return [
        [one.stream for one in process.member.workers if one.state in read]
        for process in _taking_part(world)
        if process.member is not None
    ]


def is_quiet(world: World) -> bool:
    """Whether the group is shared out and all is committed, up to the end of each log that is whole, and with
    what silence has ended.
    """
    heads = [
        (stored.head or new_stream().head, stored.end) for stored in _stored(world) if stored.whole is None
    ]
    return is_shared_out(world) and all(head.position == head.silent_to == end for head, end in heads)


def is_shared_out(world: World) -> bool:
    """Whether every stream is read by one member, who holds its claim, and shares differ by one at most.

    While logs are lost, their streams only need an owner, and stay where they are.
    """
    found = shares(world)
    if not all(
        world.holds(process, worker.stream, worker.epoch)
        for process in world.processes.values()
        if process.member is not None
        for worker in process.member.workers
    ):
        return False
    if len(found) != len(_taking_part(world)) or sorted(n for share in found for n in share) != list(
        range(world.streams)
    ):
        return False
    sizes = [len(share) for share in found]
    return max(sizes) - min(sizes) <= 1 or bool(world.lost)


def hammered(world: World) -> Iterator[str]:
    """Streams that one process has opened again and again, although each life failed at the same point."""
    fences: dict[tuple[str, int], list[float]] = {}
    bad_at: dict[int, float] = {}
    for now_s, who, what, details in world.trace.entries:
        if what == "turns bad":
            bad_at[details[0]] = now_s
        elif what == "all is healed":
            break
        elif what == "fences" and details[0] in bad_at:
            fences.setdefault((who, details[0]), []).append(now_s)
    for (who, stream), times in fences.items():
        many = [b - a for a, b in zip(times, times[MOST_FENCES:], strict=False) if b - a < FENCES_WITHIN_S]
        if many:
            yield f"{who} opened stream {stream} {MOST_FENCES + 1} times in {min(many):.1f} s"


def _taking_part(world: World) -> list[Process]:
    """The processes that have not left the group; one that was drained lives on and owns nothing."""
    return [
        process
        for process in world.processes.values()
        if process.member is None or process.member.state != "drained"
    ]


def _stored(world: World) -> list[StoredStream]:
    """Every stream as the broker keeps it."""
    return [world.broker.stored(stream) for stream in range(world.streams)]


def _number(world: World, stream: int) -> int:
    """The number of the stream's log."""
    head = world.broker.stored(stream).head
    return head.log if head is not None else 0


def _expected(world: World) -> Iterator[Row]:
    """Each session with the number of its log in front."""
    for stream, stored in enumerate(_stored(world)):
        closed, opened = fold_eagerly(stored.log, world.settings)
        assert not opened
        yield from ((_number(world, stream), stream, *session.row()) for session in closed)


def _delivered(world: World) -> Iterator[tuple[str, int, Row]]:
    """Id, number of the log and row of each session."""
    for stream, value in world.broker.sessions:
        try:
            session = parse_session(value)
        except DecodeError:
            yield "unreadable", 0, (stream, "unreadable", value)
            continue
        yield session.id, session.log, (session.stream, *delivered_row(session))
