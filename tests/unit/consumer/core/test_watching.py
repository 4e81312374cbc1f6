"""Which members a member watches, and what makes one of them a suspect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.consumer.core.ownership.watching import (
    MAX_PAUSE_MS,
    WATCHED,
    WITHIN_MS,
    Evidence,
    is_same_process,
    watched_by,
)
from shared.model.cluster import MemberNode


@given(st.sets(st.text("abc-012", min_size=1), min_size=1, max_size=9))
def test_every_member_is_watched_by_as_many_as_it_watches(members: set[str]) -> None:
    """By three others, or by all if there are fewer, and never by itself."""
    watched = {me: watched_by(me, members) for me in members}

    expected = min(WATCHED, len(members) - 1)
    for me in members:
        assert me not in watched[me]
        assert len(set(watched[me])) == len(watched[me]) == expected
        assert sum(me in others for others in watched.values()) == expected


def test_a_member_that_has_not_joined_watches_the_next_ones_all_the_same() -> None:
    """Its own id only says where it stands in the order."""
    assert watched_by("b", ["a", "c", "d", "e"]) == ["c", "d", "e"]


EVENTS = {
    "connected": lambda evidence, at: evidence.connected(at),
    "broke": lambda evidence, at: evidence.broke(at),
    "refused": lambda evidence, at: evidence.refused(at),
    "failed": lambda evidence, at: evidence.failed(),
}


@pytest.mark.parametrize(
    ("events", "is_suspect"),
    [
        ("connected 0, broke 5000, refused 5001, refused 5051", True),
        ("connected 0, broke 5000, refused 5001, refused 5201", True),
        ("connected 0, broke 5000, refused 5001, refused 5202", False),
        ("connected 0, broke 5000, refused 5001, refused 5202, refused 5300", True),
        ("connected 0, broke 5000, refused 5001", False),
        ("connected 0, broke 5000", False),
        ("refused 0, refused 50, refused 100", False),
        ("failed 0, refused 50, refused 100", False),
        ("connected 0, broke 5000, refused 5001, failed 5050, refused 5100", False),
        ("connected 0, broke 5000, failed 5050, failed 7100", False),
        ("connected 0, broke 5000, refused 5001, connected 5051, broke 5052, refused 5053", False),
        ("connected 0, broke 5000, refused 5001, refused 5051, refused 9000", True),
        ("connected 0, broke 5000, refused 5001, refused 5051, connected 5100", False),
        ("connected 0, broke 5000, refused 5001, refused 5051, failed 5100", False),
    ],
)
def test_only_two_refusals_in_a_row_after_a_connection_make_a_suspect(events: str, is_suspect: bool) -> None:
    """A time-out or a reset shows nothing, and neither does an address that has never answered."""
    evidence = Evidence()

    for event in events.split(", "):
        what, at = event.split()
        EVENTS[what](evidence, int(at))

    assert evidence.is_suspect is is_suspect


def test_a_second_attempt_is_in_time_and_later_ones_get_rare() -> None:
    """After a connection of any age, refusals follow each other closely at first."""
    evidence, now_ms, pauses = Evidence(), 0, []
    for _ in range(3):  # a port that accepts and closes at once
        evidence.connected(now_ms)
        evidence.broke(now_ms)
        pauses.append(evidence.pause_ms)
        now_ms += evidence.pause_ms
    evidence.refused(now_ms)
    second_after_ms = evidence.pause_ms
    for _ in range(20):
        evidence.refused(now_ms)

    assert pauses == sorted(pauses)
    assert pauses[-1] > pauses[0] > 0
    assert second_after_ms < WITHIN_MS / 2
    assert evidence.pause_ms == MAX_PAUSE_MS


def test_a_process_is_known_by_address_number_and_start() -> None:
    """Its state changes while it lives; a successor has another start."""
    one = MemberNode(address="http://a", pid=7, since=1)

    assert is_same_process(one, MemberNode(address="http://a", pid=7, since=1, state="draining"))
    assert not is_same_process(one, MemberNode(address="http://a", pid=7, since=2))
    assert not is_same_process(one, MemberNode(address="http://b", pid=7, since=1))
