"""The time line: one movement for each change of owner, and those of one cause together."""

from __future__ import annotations

from services.control.core.recent_events import RecentEvents, StoredEvent
from services.control.http.console.movements import HOUR_MS, by_cause, counts_of, handed_over, movements
from shared.model.events import Event, encode_event


def stored(*events: Event) -> list[StoredEvent]:
    """The events as the feed keeps them."""
    recent = RecentEvents()
    recent.begin(0)
    for number, event in enumerate(events):
        recent.add(number, encode_event(event))
    from services.control.core.recent_events import EventFilter

    return recent.newest(100, EventFilter())


def handover(at: int, stream: int, epoch: int = 2, why: str = "m0 is draining") -> Event:
    """A warm handover from m0 to m1."""
    return Event(
        at=at, group="g", kind="handover", stream=stream, epoch=epoch, source="m0", target="m1",
        why=why, sessions=10, bytes=500, pause_ms=40.0 + stream, warm=True,
    )  # fmt: skip


def claim(at: int, stream: int, epoch: int = 2, *, warm: bool | None = True) -> Event:
    """m1 reports that it has the stream."""
    return Event(
        at=at, group="g", kind="claim", member="m1", stream=stream, epoch=epoch, warm=warm, why="m0 is gone"
    )


def test_the_two_events_of_a_handover_are_one_movement() -> None:
    """The claim comes before or after; the handover says more."""
    for events in ((claim(1, 3), handover(2, 3)), (handover(2, 3), claim(1, 3))):
        (move,) = movements(stored(*events))
        assert (move.source, move.target, move.pause_ms) == ("m0", "m1", 43.0)


def test_a_claim_alone_is_a_take_over() -> None:
    """Nobody gave the stream: its owner had died, or it had none."""
    counts = counts_of(movements(stored(claim(1, 3, warm=False), handover(2, 4))))
    assert (counts.handovers, counts.warm, counts.taken_over) == (1, 1, 1)
    assert (counts.median_ms, counts.sessions, counts.bytes) == (44.0, 10, 500)


def test_movements_of_one_cause_stand_together() -> None:
    """As long as no more than a few seconds lie between one and the next."""
    moves = movements(
        stored(
            handover(0, 1),
            handover(4_000, 2),
            handover(8_000, 3),
            handover(9_000, 4, why="pinned"),
            handover(60_000, 5),
        )
    )
    causes = by_cause(moves)
    assert [[move.stream for move in cause.moves] for cause in causes] == [[5], [4], [3, 2, 1]]
    assert causes[2].longest_ms == 43.0
    assert (causes[2].sources, causes[2].targets) == (["m0"], ["m1"])


def test_an_hour_chart_marks_the_handovers_of_its_hour() -> None:
    """Neither older ones, nor streams that nobody gave."""
    moves = movements(stored(handover(0, 1), claim(5_000, 2, warm=False), handover(9_000, 3)))
    assert [move.stream for move in handed_over(moves, HOUR_MS + 1)] == [3]
