"""Which streams may stand still at a time on their way to one member."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.consumer.core.handover.turns import (
    MOST_AT_ONCE,
    TURN_LIMIT_S,
    WAIT_LIMIT_S,
    Turns,
)

AHEAD = 8
"""Copies that a donor sends side by side."""


def ask(turns: Turns, *streams: int, now_s: float = 0.0, donor: str = "a") -> None:
    """The copies of these streams arrive, from a donor in no hurry."""
    for stream in streams:
        turns.ask(stream, donor=donor, left=1, within_ms=0, now_s=now_s)


@given(st.lists(st.tuples(st.sampled_from(["ask", "end", "wait"]), st.integers(0, 9)), max_size=80))
def test_streams_take_turns_in_order(steps: list[tuple[str, int]]) -> None:
    """One at a time while no turn takes too long; none is left out, and none gets a turn that it did not ask
    for."""
    turns, now_s = Turns(), 0.0
    waiting: list[int] = []
    standing: set[int] = set()
    for what, number in steps:
        if what == "ask":
            ask(turns, number, now_s=now_s, donor=f"donor {number % 3}")
            standing.discard(number)
            waiting += [] if number in waiting else [number]
        elif what == "end":
            turns.end(number, now_s)
            standing.discard(number)
            waiting = [stream for stream in waiting if stream != number]
        else:
            now_s += number / 1000  # all steps together stay below the limits
        for stream in turns.due(now_s):
            assert stream == waiting.pop(0)
            standing.add(stream)
        assert turns.standing == len(standing) == min(1, len(standing) + len(waiting))


def test_a_turn_that_never_ends_holds_up_the_others_for_a_while() -> None:
    """Its donor may be dead, or may have refused to stop."""
    turns = Turns()
    ask(turns, 1, 2)

    assert turns.due(0.0) == [1]
    assert turns.due(TURN_LIMIT_S - 0.01) == []
    assert turns.next_s() == TURN_LIMIT_S
    assert turns.due(TURN_LIMIT_S) == [2]


def test_a_copy_waits_for_its_turn_no_longer_than_its_donor_waits_for_the_answer() -> None:
    """Turns that all time out must not make donors hold the recipient for silent."""
    turns = Turns()
    ask(turns, *range(10))
    for second in range(int(WAIT_LIMIT_S)):
        assert len(turns.due(float(second))) == 1

    assert turns.due(WAIT_LIMIT_S) == [4, 5, 6, 7, 8, 9]
    assert turns.next_s() is None


def test_a_repeated_copy_keeps_its_place_and_gives_up_its_turn() -> None:
    """Who sends again did not get the answer, so the stream runs on."""
    turns = Turns()
    ask(turns, 1, 2, 3)
    turns.due(0.0)
    ask(turns, 2, 1, now_s=0.1)

    assert [turns.due(0.1), turns.standing] == [[2], 1]
    turns.end(2, 0.2)
    turns.end(3, 0.2)
    assert turns.due(0.2) == [1]


def drain(streams: int, within_s: float, *, waits_s: float, core_s: float) -> tuple[float, int]:
    """How long a drain of so many streams takes, and how many stand still at a time.

    A turn consists of waits, which pass side by side, and of work for one core, which all turns share.
    """
    turns, now_s, core_free_s, left, most = Turns(), 0.0, 0.0, streams, 0
    ends: list[tuple[float, int]] = []

    def copy(stream: int) -> None:
        nonlocal left
        within_ms = max(1, int((within_s - now_s) * 1000))
        turns.ask(stream, donor="a", left=left, within_ms=within_ms, now_s=now_s)
        left -= 1

    for stream in range(min(AHEAD, streams)):
        copy(stream)
    for following in range(AHEAD, streams + AHEAD):
        for stream in turns.due(now_s):
            core_free_s = max(now_s, core_free_s) + core_s
            heapq.heappush(ends, (core_free_s + waits_s, stream))
        most = max(most, turns.standing)
        now_s, ended = heapq.heappop(ends)
        turns.end(ended, now_s)
        if following < streams:
            copy(following)
    return now_s, most


@pytest.mark.parametrize(
    ("streams", "waits_s", "core_s", "at_once"),
    [
        (12, 0.03, 0.01, 1),
        (288, 0.03, 0.01, 1),
        (1000, 0.005, 0.008, 1),
        (1000, 0.03, 0.01, MOST_AT_ONCE),
        (1000, 0.05, 0.012, MOST_AT_ONCE),
    ],
)
def test_a_drain_ends_in_its_time_with_as_few_at_once_as_that_needs(
    streams: int, waits_s: float, core_s: float, at_once: int
) -> None:
    """1,000 streams leave within the 20 s of a drain, even where one at a time would take 62 s."""
    took_s, most = drain(streams, 20.0, waits_s=waits_s, core_s=core_s)

    assert took_s < 20.0
    assert most <= at_once


def test_a_drain_that_cannot_end_in_its_time_makes_pauses_no_longer_without_bound() -> None:
    """Where the core is what is short, more at a time only stand still for longer."""
    _, most = drain(1000, 20.0, waits_s=0.0, core_s=0.05)

    assert most == MOST_AT_ONCE


def test_a_drain_that_has_caught_up_goes_back_to_one_at_a_time() -> None:
    """A slow beginning costs the rest nothing."""
    turns, now_s = Turns(), 0.0
    at_once: list[int] = []
    for stream in range(80):
        within_ms = 2_000 if stream < 40 else 60_000
        turns.ask(stream, donor="a", left=80, within_ms=within_ms, now_s=now_s)
        turns.due(now_s)
        now_s += 0.04
        turns.end(stream - 3, now_s)
        at_once.append(turns.at_once)

    assert max(at_once) > 1
    assert at_once[-1] == 1
