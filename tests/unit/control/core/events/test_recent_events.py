"""The newest events in a bounded ring, and the ownership history of each stream."""

from __future__ import annotations

from typing import Any

import pytest

from services.control.core.events.ownership_history import OwnershipHistory
from services.control.core.events.recent_events import EventFilter, RecentEvents
from shared.model.events import MAX_EVENT_BYTES, Event, Kind, encode_event

ALL = EventFilter()
LARGE = b'{"at":1,"group":"g","kind":"join","why":"%b"}' % (b"x" * MAX_EVENT_BYTES)


def encoded(kind: Kind = "join", *, at: int = 0, **fields: Any) -> bytes:
    """The value of an event's record."""
    return encode_event(Event(at=at, group=fields.pop("group", "default"), kind=kind, **fields))


def recent_events_of(count: int, *, kept: int = 10, first: int = 0) -> RecentEvents:
    """The ring after `count` joins, of m<first>, m<first + 1>, …"""
    recent_events = RecentEvents(kept)
    recent_events.begin(first)
    for n in range(first, first + count):
        recent_events.add(n, encoded(member=f"m{n}"))
    return recent_events


def ids(recent_events: RecentEvents, after: int, limit: int = 100) -> list[int]:
    """The ids of the events after an id."""
    return [one.id for one in recent_events.after(after, limit, ALL)]


def test_the_newest_events_are_kept_in_order() -> None:
    """Memory is bounded, however many arrive; pages continue without a gap or a repeat."""
    recent_events = recent_events_of(25)

    assert ids(recent_events, -1) == list(range(15, 25))
    assert ids(recent_events, 16, limit=3) == [17, 18, 19]
    assert [one.id for one in recent_events.newest(3, ALL)] == [22, 23, 24]
    assert (
        recent_events.after(20, 2, ALL)[0].row
        == b'{"id":21,"at":0,"group":"default","kind":"join","member":"m21"}'
    )


def test_older_pages_add_up_to_what_is_kept() -> None:
    """From the newest page down to the oldest kept event; below it there is nothing."""
    recent_events = recent_events_of(25)
    pages: list[list[int]] = []
    before = 25
    while page := recent_events.before(before, 4, ALL):
        pages.insert(0, [one.id for one in page])
        before = page[0].id

    assert pages == [[15, 16], [17, 18, 19, 20], [21, 22, 23, 24]]
    assert (recent_events.oldest, RecentEvents().oldest) == (15, None)
    assert recent_events.before(20, 5, EventFilter(member="m16"))[0].id == 16


def test_it_knows_whether_events_after_an_id_are_gone() -> None:
    """15 … 24 are kept: a client that saw 14 misses nothing; 25 does not exist yet."""
    recent_events, recreated = recent_events_of(25), recent_events_of(5, first=700)

    assert [after for after in range(30) if recent_events.is_known_after(after)] == list(range(14, 25))
    assert [after for after in range(800) if recreated.is_known_after(after)] == list(range(699, 705))


def test_records_that_are_not_events_are_skipped_and_counted() -> None:
    """Whatever is written to the topic, its events are served."""
    recent_events = recent_events_of(1)
    # no calendar shows the times of the last two
    odd = [b'{"at":%d,"group":"g","kind":"join"}' % at for at in (-1, 10**18)]
    for offset, raw in enumerate((b"", b"{", b"[]", b'{"at":1}', b'{"kind":"party"}', LARGE, None, *odd), 1):
        recent_events.add(offset, raw)
    recent_events.add(10, encoded(member="m8"))

    assert recent_events.unreadable == 9
    assert ids(recent_events, -1) == [0, 10]
    assert recent_events.is_known_after(3)


@pytest.mark.parametrize(
    ("event_filter", "found"),
    [
        (EventFilter(group="fraud"), [3]),
        (EventFilter(stream=0), [1, 2]),
        (EventFilter(kinds=frozenset({"claim", "leave"})), [1, 3]),
        (EventFilter(member="m1"), [0, 1, 2]),
        (EventFilter(group="default", stream=0, kinds=frozenset({"handover"}), member="m2"), [2]),
        (EventFilter(member="m9"), []),
    ],
)
def test_filters_combine(event_filter: EventFilter, found: list[int]) -> None:
    """An event must pass all of them; a member matches as donor and recipient, too."""
    recent_events = RecentEvents()
    recent_events.add(0, encoded("join", member="m1"))
    recent_events.add(1, encoded("claim", member="m1", stream=0, epoch=1))
    recent_events.add(2, encoded("handover", stream=0, epoch=2, source="m1", target="m2"))
    recent_events.add(3, encoded("leave", group="fraud", member="m3"))

    assert [one.id for one in recent_events.after(-1, 100, event_filter)] == found
    assert [one.id for one in recent_events.newest(100, event_filter)] == found


def history_of(*events: bytes) -> OwnershipHistory:
    """The history that these events add up to."""
    recent_events = RecentEvents()
    for offset, raw in enumerate(events):
        recent_events.add(offset, raw)
    return recent_events.ownership_history


def test_a_claim_and_its_handover_describe_one_owner() -> None:
    """Since when, why, warm or not, and how long the stream paused."""
    ownership_history = history_of(
        encoded("claim", at=10, member="m1", stream=3, epoch=1, why="has no owner", warm=False),
        encoded("claim", at=20, member="m2", stream=3, epoch=2, why="its target", warm=True),
        encoded("handover", at=25, stream=3, epoch=2, source="m1", target="m2", why="drain", pause_ms=31),
    )

    owners = [
        (o.owner, o.epoch, o.since, o.why, o.warm, o.pause_ms) for o in ownership_history.owners("default", 3)
    ]
    assert owners == [("m2", 2, 20, "drain", True, 31), ("m1", 1, 10, "has no owner", False, None)]
    handover = ownership_history.handover("default", 3)
    assert handover is not None
    assert (handover.at, handover.from_, handover.to, handover.pause_ms) == (25, "m1", "m2", 31)


def test_the_last_ten_owners_are_kept_newest_first() -> None:
    """Even if events arrive out of order or twice."""
    claims = [encoded("claim", at=n, member=f"m{n % 3}", stream=0, epoch=n) for n in range(30)]
    claims[20], claims[21] = claims[21], claims[20]

    ownership_history = history_of(*claims, claims[-1], claims[-2])

    assert [owner.epoch for owner in ownership_history.owners("default", 0)] == list(range(29, 19, -1))


def test_owners_outlive_the_kept_events() -> None:
    """A busy stream does not push a quiet stream's owners out."""
    recent_events = RecentEvents(kept=5)
    recent_events.add(0, encoded("claim", member="m1", stream=0, epoch=1))
    for n in range(1, 50):
        recent_events.add(n, encoded("claim", member="m2", stream=1, epoch=n))

    assert [owner.owner for owner in recent_events.ownership_history.owners("default", 0)] == ["m1"]


def test_groups_have_separate_histories() -> None:
    """A stream has one owner per group."""
    ownership_history = history_of(encoded("claim", group="fraud", member="m9", stream=0, epoch=1))

    assert ownership_history.owners("default", 0) == []
    assert ownership_history.handover("default", 0) is None
    assert [owner.owner for owner in ownership_history.owners("fraud", 0)] == ["m9"]


def test_a_recreated_topic_starts_a_new_history() -> None:
    """Ids of the old topic mean nothing in the new one."""
    recent_events = recent_events_of(8)
    recent_events.add(8, encoded("claim", member="m1", stream=0, epoch=1))

    recent_events.begin(0)
    recent_events.add(0, encoded(member="m0"))

    assert ids(recent_events, -1) == [0]
    assert recent_events.ownership_history.owners("default", 0) == []
    assert not recent_events.is_known_after(8)
