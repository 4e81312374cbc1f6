"""What is remembered of the topic of events: a bounded ring, and the past of each stream."""

from __future__ import annotations

from typing import Any

import pytest

from services.control.core.ownership_history import OwnershipHistory
from services.control.core.recent_events import EventFilter, RecentEvents
from shared.model.events import MAX_EVENT_BYTES, Event, Kind, encode_event

ALL = EventFilter()
LARGE = b'{"at":1,"group":"g","kind":"join","why":"%b"}' % (b"x" * MAX_EVENT_BYTES)


def told(kind: Kind = "join", *, at: int = 0, **fields: Any) -> bytes:
    """The record of an event."""
    return encode_event(Event(at=at, group=fields.pop("group", "default"), kind=kind, **fields))


def recent_events_of(count: int, *, kept: int = 10, first: int = 0) -> RecentEvents:
    """A history of so many joins, of m0, m1, …"""
    recent_events = RecentEvents(kept)
    recent_events.begin(first)
    for n in range(first, first + count):
        recent_events.add(n, told(member=f"m{n}"))
    return recent_events


def ids(recent_events: RecentEvents, after: int, limit: int = 100) -> list[int]:
    """The ids of what comes after an id."""
    return [one.id for one in recent_events.after(after, limit, ALL)]


def test_the_newest_are_kept_and_listed_in_their_order() -> None:
    """However many come, memory is bounded."""
    recent_events = recent_events_of(25)

    assert ids(recent_events, -1) == list(range(15, 25))
    assert [one.id for one in recent_events.newest(3, ALL)] == [22, 23, 24]
    assert (
        recent_events.after(20, 2, ALL)[0].row
        == b'{"id":21,"at":0,"group":"default","kind":"join","member":"m21"}'
    )


def test_pages_join_without_gap_or_repeat() -> None:
    """`after` is the last id of the page before."""
    recent_events = recent_events_of(10)
    paged: list[int] = []

    while page := ids(recent_events, paged[-1] if paged else -1, limit=3):
        paged += page

    assert paged == list(range(10))


@pytest.mark.parametrize(
    ("after", "is_known"), [(13, False), (14, True), (20, True), (24, True), (25, False)]
)
def test_it_knows_whether_something_after_an_id_is_gone(after: int, is_known: bool) -> None:
    """Of 25 events ten are kept, 15 … 24: who has seen 14 misses nothing; 25 was never given."""
    assert recent_events_of(25).is_known_after(after) == is_known


def test_what_retention_took_before_the_first_reading_is_gone_too() -> None:
    """A log that begins at 700 says nothing of 500."""
    recent_events = recent_events_of(5, first=700)

    assert not recent_events.is_known_after(500)
    assert recent_events.is_known_after(699)


def test_records_that_are_no_events_are_passed_over_and_counted() -> None:
    """Whatever somebody writes there, the rest is served."""
    recent_events = recent_events_of(1)
    for offset, raw in enumerate((b"", b"{", b"[]", b'{"at":1}', b'{"kind":"party"}', LARGE, None), 1):
        recent_events.add(offset, raw)
    recent_events.add(8, told(member="m8"))

    assert recent_events.unreadable == 7
    assert ids(recent_events, -1) == [0, 8]
    assert recent_events.is_known_after(3)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (EventFilter(group="fraud"), [3]),
        (EventFilter(stream=0), [1, 2]),
        (EventFilter(kinds=frozenset({"claim", "leave"})), [1, 3]),
        (EventFilter(member="m1"), [0, 1, 2]),
        (EventFilter(group="default", stream=0, kinds=frozenset({"handover"}), member="m2"), [2]),
        (EventFilter(member="m9"), []),
    ],
)
def test_filters_hold_together(wanted: EventFilter, found: list[int]) -> None:
    """Each one narrows; a member is found as the one who gives and the one who takes, too."""
    recent_events = RecentEvents()
    recent_events.add(0, told("join", member="m1"))
    recent_events.add(1, told("claim", member="m1", stream=0, epoch=1))
    recent_events.add(2, told("handover", stream=0, epoch=2, source="m1", target="m2"))
    recent_events.add(3, told("leave", group="fraud", member="m3"))

    assert [one.id for one in recent_events.after(-1, 100, wanted)] == found
    assert [one.id for one in recent_events.newest(100, wanted)] == found


def past_of(*events: bytes) -> OwnershipHistory:
    """The past that these events tell."""
    recent_events = RecentEvents()
    for offset, raw in enumerate(events):
        recent_events.add(offset, raw)
    return recent_events.ownership_history


def test_a_claim_and_the_handover_that_it_came_from_are_one_owner() -> None:
    """From when, why, warm or replayed, and how long the stream stood still."""
    ownership_history = past_of(
        told("claim", at=10, member="m1", stream=3, epoch=1, why="has no owner", warm=False),
        told("claim", at=20, member="m2", stream=3, epoch=2, why="its target", warm=True),
        told("handover", at=25, stream=3, epoch=2, source="m1", target="m2", why="drain", pause_ms=31),
    )

    owners = [
        (o.owner, o.epoch, o.since, o.why, o.warm, o.pause_ms) for o in ownership_history.owners("default", 3)
    ]
    assert owners == [("m2", 2, 20, "drain", True, 31), ("m1", 1, 10, "has no owner", False, None)]
    handover = ownership_history.handover("default", 3)
    assert handover is not None
    assert (handover.at, handover.from_, handover.to, handover.pause_ms) == (25, "m1", "m2", 31)


def test_ten_owners_are_remembered_the_newest_first() -> None:
    """Also when members' tellings overtook each other, or came twice."""
    claims = [told("claim", at=n, member=f"m{n % 3}", stream=0, epoch=n) for n in range(30)]
    claims[20], claims[21] = claims[21], claims[20]

    ownership_history = past_of(*claims, claims[-1], claims[-2])

    assert [owner.epoch for owner in ownership_history.owners("default", 0)] == list(range(29, 19, -1))


def test_owners_reach_further_back_than_the_events_that_are_kept() -> None:
    """A busy neighbour does not make a quiet stream's past vanish."""
    recent_events = RecentEvents(kept=5)
    recent_events.add(0, told("claim", member="m1", stream=0, epoch=1))
    for n in range(1, 50):
        recent_events.add(n, told("claim", member="m2", stream=1, epoch=n))

    assert [owner.owner for owner in recent_events.ownership_history.owners("default", 0)] == ["m1"]


def test_groups_do_not_share_a_past() -> None:
    """A stream has one owner in each group."""
    ownership_history = past_of(told("claim", group="fraud", member="m9", stream=0, epoch=1))

    assert ownership_history.owners("default", 0) == []
    assert ownership_history.handover("default", 0) is None
    assert [owner.owner for owner in ownership_history.owners("fraud", 0)] == ["m9"]


def test_a_topic_that_was_made_anew_begins_a_new_past() -> None:
    """Ids of the old one mean nothing any more."""
    recent_events = recent_events_of(8)
    recent_events.add(8, told("claim", member="m1", stream=0, epoch=1))

    recent_events.begin(0)
    recent_events.add(0, told(member="m0"))

    assert ids(recent_events, -1) == [0]
    assert recent_events.ownership_history.owners("default", 0) == []
    assert not recent_events.is_known_after(8)
