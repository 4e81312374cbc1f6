"""The time line: one movement for each change of owner, and those of one cause together."""

from __future__ import annotations

import itertools

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from services.control.core.recent_events import EventFilter, RecentEvents, StoredEvent
from services.control.http.console.movements import (
    HOUR_MS,
    by_cause,
    chosen,
    counts_of,
    handed_over,
    members_of,
    movements,
)
from services.control.http.console.pauses import (
    BOTTOM,
    LABEL,
    LEFT,
    LETTER,
    RIGHT,
    TIMES,
    TOP,
    PauseChart,
    pause_chart,
    time_labels,
)
from shared.model.events import Event, encode_event


def stored(*events: Event) -> list[StoredEvent]:
    """The events as the feed keeps them."""
    recent = RecentEvents()
    recent.begin(0)
    for number, event in enumerate(events):
        recent.add(number, encode_event(event))
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


def takeover(at: int, stream: int, epoch: int = 2) -> Event:
    """m1 has replayed a stream of m0."""
    return Event(
        at=at, group="g", kind="takeover", member="m1", stream=stream, epoch=epoch, source="m0", target="m1",
        why="m0 is gone", sessions=7, bytes=300, pause_ms=1_200.0, warm=False,
    )  # fmt: skip


def test_the_two_events_of_a_handover_are_one_movement() -> None:
    """The claim comes before or after; the handover says more."""
    for events in ((claim(1, 3), handover(2, 3)), (handover(2, 3), claim(1, 3))):
        (move,) = movements(stored(*events))
        assert (move.source, move.target, move.pause_ms) == ("m0", "m1", 43.0)


def test_a_claim_alone_is_a_take_over() -> None:
    """Nobody gave the stream: it had no owner, or nothing is known of that yet."""
    counts = counts_of(movements(stored(claim(1, 3, warm=False), handover(2, 4))))
    assert (counts.handovers, counts.warm, counts.taken_over) == (1, 1, 1)
    assert (counts.median_ms, counts.sessions, counts.bytes) == (44.0, 10, 500)


def test_a_take_over_is_shown_beside_the_handovers() -> None:
    """Its owner had died: from whom, with what, and how long nobody had the stream."""
    moves = movements(stored(claim(1, 3, warm=False), takeover(2, 3), handover(3, 4)))
    counts = counts_of(moves)
    chart = pause_chart(moves, counts, HOUR_MS, None)

    assert [(move.stream, move.is_handover, move.source) for move in moves] == [
        (4, True, "m0"),
        (3, False, "m0"),
    ]
    assert (counts.handovers, counts.warm, counts.taken_over) == (1, 1, 1)
    assert (counts.median_ms, counts.longest_ms, counts.sessions, counts.bytes) == (622.0, 1_200.0, 17, 800)
    assert chart is not None
    assert [is_warm for _, _, is_warm in chart.points] == [True, False]


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


def chart_of(pauses_ms: list[float]) -> PauseChart:
    """The chart of handovers with these pauses."""
    events = [msgspec.structs.replace(handover(n, n), pause_ms=ms) for n, ms in enumerate(pauses_ms)]
    moves = movements(stored(*events))
    chart = pause_chart(moves, counts_of(moves), HOUR_MS, None)
    assert chart is not None
    return chart


@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=300))
def test_no_more_than_a_hundredth_of_the_pauses_is_longer_than_the_p99(pauses_ms: list[float]) -> None:
    """It is one of them, between the median and the longest."""
    events = [msgspec.structs.replace(handover(n, n), pause_ms=ms) for n, ms in enumerate(pauses_ms)]
    counts = counts_of(movements(stored(*events)))

    assert counts.median_ms is not None
    assert counts.p99_ms in pauses_ms
    assert counts.median_ms <= counts.p99_ms <= max(pauses_ms) == counts.longest_ms
    assert sum(ms > counts.p99_ms for ms in pauses_ms) <= len(pauses_ms) / 100


@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=300))
def test_the_distribution_stays_in_its_frame_and_its_labels_apart(pauses_ms: list[float]) -> None:
    """Also with pauses off the scale, and when all are alike."""
    chart = chart_of(pauses_ms)
    labels = [one.label_y for one in chart.quantiles]

    assert max(width for _, width in chart.bars) == 100
    assert all(y >= TOP and y + chart.bar_height <= BOTTOM + 0.1 for y, _ in chart.bars)
    assert [one.text.split()[0] for one in chart.quantiles] == ["longest", "p99", "median"]
    assert all(lower - upper >= LABEL - 0.1 for upper, lower in itertools.pairwise(labels))
    assert all(one.text in chart.distribution for one in chart.quantiles)


def test_the_time_line_says_why_many_streams_moved() -> None:
    """The largest causes first; a label that would cover one of them is left out, and so are single moves."""
    hour = [
        *(handover(1_000 + n, n, why="m0 is draining") for n in range(5)),
        *(handover(20_000 + n, n, epoch=3, why="m2 has joined") for n in range(3)),
        handover(1_000_000, 1, epoch=4, why="pinned to m1"),
        *(
            handover(3_500_000 + n, n, epoch=5, why="a cause of more than forty letters: m3 is gone")
            for n in (1, 2)
        ),
    ]
    moves = movements(stored(*hour))
    chart = pause_chart(moves, counts_of(moves), HOUR_MS, HOUR_MS)
    assert chart is not None

    assert [one.text for one in chart.causes] == [
        "m0 is draining",
        "a cause of more than forty letters: m3 …",
    ]
    assert [one.anchor for one in chart.causes] == ["start", "end"]
    assert all(TOP <= one.y <= BOTTOM for one in chart.causes)


@given(
    st.lists(
        st.tuples(st.integers(0, HOUR_MS), st.sampled_from(["", "m0 is draining", "w" * 99])), max_size=60
    )
)
def test_the_labels_of_causes_stay_in_the_drawing_and_apart(world: list[tuple[int, str]]) -> None:
    """Wherever they stand, and however long they are."""
    moves = movements(stored(*(handover(at, n, why=why) for n, (at, why) in enumerate(world))))
    chart = pause_chart(moves, counts_of(moves), HOUR_MS, HOUR_MS)
    places = []
    for one in chart.causes if chart else ():
        width = len(one.text) * LETTER
        begin = one.x if one.anchor == "start" else one.x - width
        assert LEFT - 0.01 <= begin <= begin + width <= RIGHT + 0.01
        places.append((begin, begin + width, one.y))

    for (low, high, y), (other_low, other_high, other_y) in itertools.combinations(places, 2):
        assert high <= other_low + 0.01 or other_high <= low + 0.01 or abs(y - other_y) >= LABEL


def test_a_bar_is_as_wide_as_it_has_pauses() -> None:
    """The widest bar is that with most pauses; longer pauses stand higher."""
    bars = chart_of([2_000.0, 20.0, 20.0, 20.0, 20.0]).bars

    assert [width for _, width in bars] == [25, 100]
    assert bars[0][0] < bars[1][0]


@given(st.integers(0, 2_000_000_000_000), st.integers(1, 400 * 86_400_000))
def test_a_time_line_has_a_few_labels_at_round_times(begin_ms: int, length_ms: int) -> None:
    """All within the span, at equal distances."""
    times = [at for at, _ in time_labels(begin_ms, begin_ms + length_ms)]

    assert len(times) <= TIMES + 1
    assert all(begin_ms <= at < begin_ms + length_ms and at % 1_000 == 0 for at in times)
    assert len({later - at for at, later in itertools.pairwise(times)}) <= 1


def test_filters_leave_what_matches_all_of_them() -> None:
    """A member may have given or got the stream; a claim alone was given by nobody."""
    moves = movements(stored(handover(1_000, 1), claim(2_000, 2, warm=False), handover(3_000, 3)))

    def streams(**filters: object) -> list[int]:
        every: dict[str, object] = {"since_ms": None, "stream": None, "member": "", "kind": ""}
        return [move.stream for move in chosen(moves, **(every | filters))]  # type: ignore[arg-type]

    assert streams() == [3, 2, 1]
    assert streams(since_ms=2_000) == [3, 2]
    assert streams(member="m0") == [3, 1]
    assert streams(kind="take-over") == [2]
    assert streams(kind="handover", stream=1, member="m1") == [1]
    assert members_of(moves) == ["m0", "m1"]


def test_an_hour_chart_marks_the_handovers_of_its_hour() -> None:
    """Neither older ones, nor streams that nobody gave."""
    moves = movements(stored(handover(0, 1), claim(5_000, 2, warm=False), handover(9_000, 3)))
    assert [move.stream for move in handed_over(moves, HOUR_MS + 1)] == [3]
