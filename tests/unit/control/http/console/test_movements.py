"""The time line: one movement for each change of owner, and those of one cause together."""

from __future__ import annotations

import itertools

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from services.control.core.events.movements import (
    HOUR_MS,
    LONGEST_MS,
    by_cause,
    chosen,
    counts_of,
    handed_over,
    members_of,
    movements,
    older_than,
)
from services.control.core.events.recent_events import EventFilter, RecentEvents, StoredEvent
from services.control.core.operations.likely import Likely, likely
from services.control.http.console.drawing.pauses import (
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
from services.control.http.console.shown.overview import moved_words
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
    assert (counts.handover_pauses.median_ms, counts.sessions, counts.bytes) == (44.0, 10, 500)


def test_the_first_claim_of_a_new_stream_takes_nothing_over() -> None:
    """Nobody had owned it, so there was nothing to replay either; all filters but `any` leave it out."""
    (first,) = moves = movements(stored(claim(1, 3, epoch=1, warm=False)))
    counts = counts_of(moves)

    assert (counts.handovers, counts.taken_over) == (0, 0)
    assert (first.is_first, first.is_takeover, first.is_warm) == (True, False, None)
    assert moved_words(counts) == ""
    found = [
        chosen(moves, since_ms=None, stream=None, member="", kind=kind)
        for kind in ("", "handover", "take-over")
    ]
    assert [len(one) for one in found] == [1, 0, 0]


def test_take_overs_say_nothing_of_what_a_handover_costs() -> None:
    """They wait for the end of a session: their pauses stand apart, however many they are."""
    hour = [handover(n, n) for n in range(3)] + [takeover(10 + n, n, epoch=9) for n in range(6)]
    moves = movements(stored(*hour))
    counts = counts_of(moves)
    chart = pause_chart(moves, counts, HOUR_MS, HOUR_MS)
    assert chart is not None

    assert (counts.handover_pauses.median_ms, counts.handover_pauses.longest_ms) == (41.0, 42.0)
    assert (counts.takeover_pauses.median_ms, counts.takeover_pauses.longest_ms) == (1_200.0, 1_200.0)
    assert moved_words(counts) == "3 handovers, all warm, median pause 41 ms, 6 taken over"
    assert (len(chart.points), chart.of, chart.quantiles[-1].text) == (9, "3 handovers", "median 41 ms")
    assert likely(moves, 2, HOUR_MS).pause_ms == 41.0


def test_without_a_handover_the_distribution_is_that_of_the_take_overs() -> None:
    """The filter for take-overs has its chart, and nothing is said of handovers."""
    moves = movements(stored(takeover(1, 1), takeover(2, 2)))
    chart = pause_chart(moves, counts_of(moves), HOUR_MS, None)
    assert chart is not None

    assert (chart.of, chart.quantiles[-1].text) == ("2 take-overs", "median 1.20 s")
    assert moved_words(counts_of(moves)) == "2 taken over"
    assert likely(moves, 2, HOUR_MS) == Likely()


def test_what_is_likely_rests_on_the_last_hour() -> None:
    """A pause is the median; the whole takes one handover and, for each further one, a step of the past."""
    old = handover(0, 9)
    hour = [msgspec.structs.replace(handover(HOUR_MS + 500 * n, n, epoch=3), copy_ms=200.0) for n in range(5)]
    now_ms = HOUR_MS + 10_000

    assert likely(movements(stored(old)), 1, now_ms) == Likely()
    assert likely(movements(stored(old, *hour)), 0, now_ms) == Likely()
    assert likely(movements(stored(old, *hour)), 1, now_ms) == Likely(
        pause_ms=42.0, longest_pause_ms=44.0, length_ms=242.0
    )
    assert likely(movements(stored(old, *hour)), 4, now_ms).length_ms == 242.0 + 3 * 500
    assert likely(movements(stored(hour[0])), 4, now_ms).length_ms is None


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
    assert (counts.handover_pauses.median_ms, counts.handover_pauses.longest_ms) == (44.0, 44.0)
    assert counts.takeover_pauses.median_ms == 1_200.0
    assert (counts.sessions, counts.bytes) == (17, 800)
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
    pauses = counts_of(movements(stored(*events))).handover_pauses

    assert pauses.median_ms is not None
    assert pauses.p99_ms in pauses_ms
    assert pauses.median_ms <= pauses.p99_ms <= max(pauses_ms) == pauses.longest_ms
    assert sum(ms > pauses.p99_ms for ms in pauses_ms) <= len(pauses_ms) / 100


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


def test_older_movements_follow_the_last_one_of_a_page() -> None:
    """By the id of its event, so that new ones shift nothing; an id that is gone begins anew."""
    moves = movements(stored(*(handover(1_000 * n, n) for n in range(5))))

    assert [move.stream for move in older_than(moves, None)] == [4, 3, 2, 1, 0]
    assert [move.stream for move in older_than(moves, 3)] == [2, 1, 0]
    assert older_than(moves, 0) == []
    assert len(older_than(moves, 77)) == 5


def test_a_handover_names_the_drain_or_move_that_it_is_part_of() -> None:
    """By donor, or by stream and recipient, once it has begun; not what merely came later, nor a cancel."""

    def action(at: int, what: str, operation: str, **about: object) -> Event:
        return Event(at=at, group="g", kind="action", what=what, operation=operation, **about)  # type: ignore[arg-type]

    moves = movements(
        stored(
            handover(1_000, 1),
            action(10_000, "drain m0", "d1", member="m0"),
            action(11_000, "cancel drain m0", "d1", member="m0"),
            handover(12_000, 2, epoch=3),
            action(20_000, "move 3 to m1", "v1", stream=3, target="m1"),
            handover(21_000, 3, epoch=3),
            takeover(22_000, 4, epoch=3),
            handover(12_000 + LONGEST_MS, 5, epoch=3),
        )
    )

    assert {move.stream: move.operation for move in moves} == {1: "", 2: "d1", 3: "v1", 4: "", 5: ""}


def test_an_hour_chart_marks_the_handovers_of_its_hour() -> None:
    """Neither older ones, nor streams that nobody gave."""
    moves = movements(stored(handover(0, 1), claim(5_000, 2, warm=False), handover(9_000, 3)))
    assert [move.stream for move in handed_over(moves, HOUR_MS + 1)] == [3]
