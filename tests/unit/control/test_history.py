"""What is remembered of the topic of events: a bounded ring, and the past of each stream."""

from __future__ import annotations

from typing import Any

import pytest

from services.control.core.ownership_history import Past
from services.control.core.recent_events import History, Wanted
from shared.model.events import MAX_EVENT_BYTES, Event, Kind, encode_event

ALL = Wanted()
LARGE = b'{"at":1,"group":"g","kind":"join","why":"%b"}' % (b"x" * MAX_EVENT_BYTES)


def told(kind: Kind = "join", *, at: int = 0, **fields: Any) -> bytes:
    """The record of an event."""
    return encode_event(Event(at=at, group=fields.pop("group", "default"), kind=kind, **fields))


def history_of(count: int, *, kept: int = 10, first: int = 0) -> History:
    """A history of so many joins, of m0, m1, …"""
    history = History(kept)
    history.begin(first)
    for n in range(first, first + count):
        history.add(n, told(member=f"m{n}"))
    return history


def ids(history: History, after: int, limit: int = 100) -> list[int]:
    """The ids of what comes after an id."""
    return [one.id for one in history.after(after, limit, ALL)]


def test_the_newest_are_kept_and_listed_in_their_order() -> None:
    """However many come, memory is bounded."""
    history = history_of(25)

    assert ids(history, -1) == list(range(15, 25))
    assert [one.id for one in history.newest(3, ALL)] == [22, 23, 24]
    assert (
        history.after(20, 2, ALL)[0].row == b'{"id":21,"at":0,"group":"default","kind":"join","member":"m21"}'
    )


def test_pages_join_without_gap_or_repeat() -> None:
    """`after` is the last id of the page before."""
    history = history_of(10)
    paged: list[int] = []

    while page := ids(history, paged[-1] if paged else -1, limit=3):
        paged += page

    assert paged == list(range(10))


@pytest.mark.parametrize(
    ("after", "is_known"), [(13, False), (14, True), (20, True), (24, True), (25, False)]
)
def test_it_knows_whether_something_after_an_id_is_gone(after: int, is_known: bool) -> None:
    """Of 25 events ten are kept, 15 … 24: who has seen 14 misses nothing; 25 was never given."""
    assert history_of(25).is_known_after(after) == is_known


def test_what_retention_took_before_the_first_reading_is_gone_too() -> None:
    """A log that begins at 700 says nothing of 500."""
    history = history_of(5, first=700)

    assert not history.is_known_after(500)
    assert history.is_known_after(699)


def test_records_that_are_no_events_are_passed_over_and_counted() -> None:
    """Whatever somebody writes there, the rest is served."""
    history = history_of(1)
    for offset, raw in enumerate((b"", b"{", b"[]", b'{"at":1}', b'{"kind":"party"}', LARGE, None), 1):
        history.add(offset, raw)
    history.add(8, told(member="m8"))

    assert history.unreadable == 7
    assert ids(history, -1) == [0, 8]
    assert history.is_known_after(3)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted(group="fraud"), [3]),
        (Wanted(stream=0), [1, 2]),
        (Wanted(kinds=frozenset({"claim", "leave"})), [1, 3]),
        (Wanted(member="m1"), [0, 1, 2]),
        (Wanted(group="default", stream=0, kinds=frozenset({"handover"}), member="m2"), [2]),
        (Wanted(member="m9"), []),
    ],
)
def test_filters_hold_together(wanted: Wanted, found: list[int]) -> None:
    """Each one narrows; a member is found as the one who gives and the one who takes, too."""
    history = History()
    history.add(0, told("join", member="m1"))
    history.add(1, told("claim", member="m1", stream=0, epoch=1))
    history.add(2, told("handover", stream=0, epoch=2, source="m1", target="m2"))
    history.add(3, told("leave", group="fraud", member="m3"))

    assert [one.id for one in history.after(-1, 100, wanted)] == found
    assert [one.id for one in history.newest(100, wanted)] == found


def past_of(*events: bytes) -> Past:
    """The past that these events tell."""
    history = History()
    for offset, raw in enumerate(events):
        history.add(offset, raw)
    return history.past


def test_a_claim_and_the_handover_that_it_came_from_are_one_owner() -> None:
    """From when, why, warm or replayed, and how long the stream stood still."""
    past = past_of(
        told("claim", at=10, member="m1", stream=3, epoch=1, why="has no owner", warm=False),
        told("claim", at=20, member="m2", stream=3, epoch=2, why="its target", warm=True),
        told("handover", at=25, stream=3, epoch=2, source="m1", target="m2", why="drain", pause_ms=31),
    )

    owners = [(o.owner, o.epoch, o.since, o.why, o.warm, o.pause_ms) for o in past.owners("default", 3)]
    assert owners == [("m2", 2, 20, "drain", True, 31), ("m1", 1, 10, "has no owner", False, None)]
    handover = past.handover("default", 3)
    assert handover is not None
    assert (handover.at, handover.from_, handover.to, handover.pause_ms) == (25, "m1", "m2", 31)


def test_ten_owners_are_remembered_the_newest_first() -> None:
    """Also when members' tellings overtook each other, or came twice."""
    claims = [told("claim", at=n, member=f"m{n % 3}", stream=0, epoch=n) for n in range(30)]
    claims[20], claims[21] = claims[21], claims[20]

    past = past_of(*claims, claims[-1], claims[-2])

    assert [owner.epoch for owner in past.owners("default", 0)] == list(range(29, 19, -1))


def test_owners_reach_further_back_than_the_events_that_are_kept() -> None:
    """A busy neighbour does not make a quiet stream's past vanish."""
    history = History(kept=5)
    history.add(0, told("claim", member="m1", stream=0, epoch=1))
    for n in range(1, 50):
        history.add(n, told("claim", member="m2", stream=1, epoch=n))

    assert [owner.owner for owner in history.past.owners("default", 0)] == ["m1"]


def test_groups_do_not_share_a_past() -> None:
    """A stream has one owner in each group."""
    past = past_of(told("claim", group="fraud", member="m9", stream=0, epoch=1))

    assert past.owners("default", 0) == []
    assert past.handover("default", 0) is None
    assert [owner.owner for owner in past.owners("fraud", 0)] == ["m9"]


def test_a_topic_that_was_made_anew_begins_a_new_past() -> None:
    """Ids of the old one mean nothing any more."""
    history = history_of(8)
    history.add(8, told("claim", member="m1", stream=0, epoch=1))

    history.begin(0)
    history.add(0, told(member="m0"))

    assert ids(history, -1) == [0]
    assert history.past.owners("default", 0) == []
    assert not history.is_known_after(8)
