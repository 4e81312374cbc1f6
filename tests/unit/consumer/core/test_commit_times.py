"""When a turn commits, how long it waits otherwise, and when it asks for a tick."""

from __future__ import annotations

import pytest

from services.consumer.core.commits.checkpoint import Checkpoint
from services.consumer.core.commits.commit import Commit
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.ticks import QUIET_S, TICK_EVERY_S
from services.consumer.core.commits.turn import EMPTY_S, IDLE_S, RENEW_S, StreamLimits, Tick, Turn
from services.consumer.core.sessions.covered import CoveredKeys
from services.consumer.core.sessions.state import Covered
from shared.model.group import GroupSettings
from shared.model.head import Head
from tests.reference import Rec

SETTINGS = GroupSettings(idle_ms=10_000)
BEGUN_S, COMMIT_S = 1_000.0, 2.0
FIRST = 100
"""The stored position."""


def stream_at(*, safe_offset: int = FIRST) -> Stream:
    """A stream that committed at `BEGUN_S`; with a lower safe offset it has something to replay."""
    head = Head(epoch=1, seq=1, position=FIRST, safe_offset=safe_offset, w=0, a=0)
    return Stream(
        group="g",
        stream=0,
        epoch=1,
        settings=SETTINGS,
        limits=StreamLimits(max_replay_fragments=100),
        checkpoint=Checkpoint(head=head),
        now_s=BEGUN_S,
    )


def records(first: int, count: int) -> list[Rec]:
    return [Rec(first + n, 1_000, b"k", b'{"key":"k"}') for n in range(count)]


def turn_of(stream: Stream, count: int, later_s: float, *, wall_ms: int = 0, first: int = FIRST) -> Turn:
    return stream.turn(records(first, count), now_s=BEGUN_S + later_s, wall_ms=wall_ms, commit_s=COMMIT_S)


@pytest.mark.parametrize(
    ("count", "later_s", "commits", "wait_s"),
    [
        (0, 0.5, False, EMPTY_S),
        (0, RENEW_S - 1, False, EMPTY_S),
        (0, RENEW_S + 1, True, EMPTY_S),
        (1, 0.5, False, COMMIT_S - 0.5),
        (1, COMMIT_S, True, IDLE_S),
        (25, 0.5, False, COMMIT_S - 0.5),
        (26, 0.5, True, IDLE_S),
    ],
)
def test_a_commit_is_due_after_a_while_or_after_much_reading(
    count: int, later_s: float, commits: bool, wait_s: float
) -> None:
    """Changes after `commit_s`, or a quarter of the longest replay; without changes only now and then."""
    turn = turn_of(stream_at(), count, later_s)

    assert [type(effect) for effect in turn.effects] == ([Commit] if commits else [])
    assert turn.wait_s == pytest.approx(wait_s)


def test_a_replay_neither_commits_nor_ticks() -> None:
    """The stored head is further on, and what is open is not yet what it was."""
    turn = turn_of(stream_at(safe_offset=50), 10, 10 * RENEW_S, wall_ms=10_000_000, first=50)

    assert turn.effects == ()


@pytest.mark.parametrize(("idle_ms", "ticks"), [(9_000, False), (11_000, True)])
def test_a_tick_is_due_when_a_session_is_idle_on_a_silent_stream(idle_ms: int, ticks: bool) -> None:
    """By the member's clock, as the log's stands still."""
    stream = stream_at()
    turn_of(stream, 1, 0.1)

    turn = turn_of(stream, 0, QUIET_S + TICK_EVERY_S, wall_ms=1_000 + idle_ms)

    assert (Tick in map(type, turn.effects)) is ticks


def test_a_commit_writes_what_has_changed_and_how_many_ids_are_new() -> None:
    """Nothing of a key that is forgotten by then, and no id that a checkpoint has already."""
    kept, gone = Covered(offset=5, ids={7: 0}), Covered(offset=1, ids={3: 0, 4: 0})
    covered = CoveredKeys(0, {"forgotten": gone, "known": kept})
    covered.changed["forgotten"] = gone
    covered.cover("known", covered.entries["known"])

    changes = covered.take_changes(safe_offset=4, safe_a=10)

    assert list(changes) == ["known"]
    assert changes["known"].new_ids == 0
    assert covered.remembered_ids == 1
