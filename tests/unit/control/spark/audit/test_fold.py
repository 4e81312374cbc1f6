"""The audit's own fold: an example for each rule (docs/protocol.md), and a comparison with the assembler."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.consumer.core.sessions.assembly import Assembler
from services.consumer.core.sessions.record import Record
from services.control.spark.audit.fold import Cut, Expected, KeyFold, Late, Line
from services.control.spark.audit.markers import Mark, Markers
from services.control.spark.audit.reading import read_record
from services.control.spark.audit.rows import digest
from shared.model.group import GroupSettings
from tests.logs import random_log

SMALL = GroupSettings(
    gap_ms=100,
    lateness_ms=20,
    idle_ms=200,
    future_ms=50,
    repeat_ms=60,
    max_session_fragments=4,
    max_session_bytes=400,
    max_session_span_ms=300,
)


def line(offset: int, t: int, *, w: int = -1, a: int = 0, end: bool = False, name: str | None = None) -> Line:
    """A fragment of 10 bytes; by default W lags behind and A does not advance."""
    return Line(offset, a, t, w, a, end, name, 10, b"%016d" % offset)


def fold(lines: list[Line], marks: list[Mark] | None = None, cut: Cut | None = None) -> list[Expected]:
    """The sessions of one key under SMALL, the open one last."""
    key = KeyFold(SMALL, Markers(marks or []), cut)
    sessions = [session for one in lines for session in key.feed(one)]
    return sessions + key.finish()


def spans(sessions: list[Expected]) -> list[tuple[int, int, str, int | None]]:
    """First and last offset, reason and closing record of each session."""
    return [(one.first_offset, one.last_offset, one.reason, one.closed_by) for one in sessions]


def test_a_gap_in_event_time_splits() -> None:
    """Rule 3: a fragment more than gap after the session's highest time closes it, one at gap does not."""
    sessions = fold([line(0, 1000), line(1, 1100), line(5, 1201)])

    assert spans(sessions) == [(0, 1, "gap", 5), (5, 5, "gap", None)]


def test_an_older_fragment_does_not_split() -> None:
    """Rule 3: a fragment older than the last one joins the session, and changes only its lowest time."""
    sessions = fold([line(0, 1000), line(1, 800), line(2, 1090)])

    assert spans(sessions) == [(0, 2, "gap", None)]
    assert (sessions[0].first_t, sessions[0].last_t) == (800, 1090)


def test_the_streams_progress_splits_a_silent_session() -> None:
    """Rule 3: W beyond gap + lateness after the session's last fragment closes it, whatever t is."""
    at_the_limit = fold([line(0, 1000), line(9, 1050, w=1120)])
    beyond = fold([line(0, 1000), line(9, 1050, w=1121)])

    assert spans(at_the_limit) == [(0, 9, "gap", None)]
    assert spans(beyond) == [(0, 0, "gap", 9), (9, 9, "gap", None)]


def test_silence_in_append_time_splits() -> None:
    """Rule 3: A beyond idle after the session's last fragment closes it."""
    sessions = fold([line(0, 1000, a=0), line(1, 1001, a=200), line(2, 1002, a=401)])

    assert spans(sessions) == [(0, 1, "gap", 2), (2, 2, "gap", None)]


def test_a_marker_closes_sessions_up_to_its_time() -> None:
    """Rule 2: last_t <= time closes with reason gap; a session that reaches further stays open."""
    sessions = fold([line(0, 1000), line(4, 1050)], [Mark(2, 999), Mark(3, 1000), Mark(7, 1050)])

    assert spans(sessions) == [(0, 0, "gap", 3), (4, 4, "gap", 7)]


def test_an_end_closes_with_its_own_fragment() -> None:
    """Rule 6: the fragment with `end` belongs to the session that it closes."""
    sessions = fold([line(0, 1000), line(1, 1001, end=True), line(2, 1002)])

    assert spans(sessions) == [(0, 1, "end", 1), (2, 2, "gap", None)]


def test_a_repeat_in_an_open_session_is_dropped_without_a_trace() -> None:
    """Rule 4: a repeat neither joins nor renews last_a, so silence counts from the fragment before it."""
    sessions = fold([line(0, 1000, name="x"), line(1, 1001, a=150, name="x"), line(2, 1002, a=201)])

    assert spans(sessions) == [(0, 0, "gap", 2), (2, 2, "gap", None)]


def test_ids_are_remembered_until_repeat_after_the_last_fragment() -> None:
    """Rule 4: a closed session's ids are known exactly while A <= last_a + repeat."""
    in_time = fold([line(0, 1000, name="x", end=True), line(1, 1001, a=60, name="x")])
    too_late = fold([line(0, 1000, name="x", end=True), line(1, 1001, a=61, name="x")])

    assert spans(in_time) == [(0, 0, "end", 0)]
    assert spans(too_late) == [(0, 0, "end", 0), (1, 1, "gap", None)]


@pytest.mark.parametrize(("a", "is_repeat"), [(60, True), (61, False)])
def test_an_open_session_does_not_prolong_the_ids_of_one_before(a: int, is_repeat: bool) -> None:
    """Rule 4: an id ages by its own session, also while the key has an open one."""
    lines = [line(0, 1000, name="x", end=True), line(1, 1001, a=50), line(2, 1002, a=a, name="x")]

    assert spans(fold(lines))[1:] == [(1, 1 if is_repeat else 2, "gap", None)]


def test_ids_of_several_sessions_age_one_by_one() -> None:
    """Rule 4: the example of docs/protocol.md, fragments that all say `end`."""
    log = [(0, "x"), (50, "y"), (61, "x"), (100, "y"), (121, "x")]
    lines = [line(offset, 1000, a=a, name=name, end=True) for offset, (a, name) in enumerate(log)]

    assert [first for first, *_ in spans(fold(lines))] == [0, 1, 2]


def test_only_the_newest_ids_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 4: one more id than a key remembers, and the oldest is forgotten."""
    monkeypatch.setattr("services.control.spark.audit.fold.REMEMBERED", 2)
    lines = [line(offset, 1000, name=name, end=True) for offset, name in enumerate("xyzyx")]

    assert [first for first, *_ in spans(fold(lines))] == [0, 1, 2, 4]


def test_a_limit_closes_before_the_fragment_that_would_exceed_it() -> None:
    """Rule 5: number, bytes and span include the new fragment."""
    number = fold([line(offset, 1000) for offset in range(6)])
    size = fold(
        [msgspec.structs.replace(line(0, 1000), size=300), msgspec.structs.replace(line(1, 1000), size=101)]
    )
    span = fold([line(0, 1000), line(1, 1100), line(2, 1200), line(3, 1300), line(4, 1301)])

    assert spans(number) == [(0, 3, "limit", 4), (4, 5, "gap", None)]
    assert spans(size) == [(0, 0, "limit", 1), (1, 1, "gap", None)]
    assert spans(span)[0] == (0, 3, "limit", 4)


def test_a_repeat_never_meets_a_limit_and_is_known_after_it() -> None:
    """Rules 4 and 5 in order: a full session drops a repeat; a close by rule 5 keeps the ids of the key."""
    full = [line(offset, 1000, name=f"i{offset}") for offset in range(4)]
    closed = [*full, line(4, 1000, name="i4")]

    assert spans(fold([*full, line(4, 1000, name="i0")])) == [(0, 3, "gap", None)]
    assert spans(fold([*closed, line(5, 1000, name="i0")])) == [(0, 3, "limit", 4), (4, 4, "gap", None)]


@pytest.mark.parametrize(
    ("cut", "w", "a", "is_due", "is_surely_due"),
    [
        (None, 1120, 200, False, False),
        (None, 1121, 0, True, True),
        (None, 0, 201, True, True),
        (Cut(0, 1000), 1121, 0, True, True),
        (Cut(0, 1001), 1121, 0, True, False),
        (Cut(0, 1001), 1121, 201, True, True),
    ],
)
def test_silence_makes_an_open_session_due(
    cut: Cut | None, w: int, a: int, is_due: bool, is_surely_due: bool
) -> None:
    """A session ends once W or A is far enough ahead; not surely if W may have been higher before."""
    key = KeyFold(SMALL, Markers(), cut)
    key.feed(line(0, 1000))

    (session,) = key.finish()

    assert session.closed_by is None
    assert key.is_due(session, Late(w, a)) is is_due
    assert key.is_due(session, Late(w, a), surely=True) is is_surely_due


def test_sessions_that_may_have_begun_before_the_cut_are_not_judged() -> None:
    """Retention: a key is unsure until it has been silent for longer than idle and repeat."""
    sessions = fold(
        [line(90, 1000, a=10, end=True), line(91, 1000, a=210), line(95, 1000, a=411)], cut=Cut(0, 60)
    )

    assert [one.is_sure for one in sessions] == [False, False, True]


def test_a_split_that_a_removed_record_could_prevent_is_not_judged() -> None:
    """Retention: where W decides and may have been higher, the sessions on both sides are unsure."""
    lines = [line(90, 1000, a=300), line(91, 1050, w=1121, a=310), line(92, 1050, w=1121, a=700)]

    unsure = fold(lines, cut=Cut(0, 1010))
    sure = fold(lines, cut=Cut(0, 1000))

    assert [one.is_sure for one in unsure] == [False, False, True]
    assert [one.is_sure for one in sure] == [True, True, True]


class Logged(msgspec.Struct, frozen=True):
    """A record for the assembler."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def _value(key: str, time: int | None, name: int | None, end: bool, pad: int) -> bytes:
    body = {"key": key, "data": "x" * pad}
    optional = {"time": time, "id": None if name is None else f"i{name}", "end": end or None}
    return msgspec.json.encode(body | {k: v for k, v in optional.items() if v is not None})


_fragments = st.builds(
    lambda key, time, name, end, pad: (key.encode(), _value(key, time, name, end, pad)),
    st.sampled_from("abc"),
    st.none() | st.integers(0, 1500),
    st.none() | st.integers(0, 5),
    st.sampled_from([False] * 6 + [True]),
    st.sampled_from([0, 0, 0, 150]),
)
_marks = st.sampled_from([(None, b"{}"), (b"a", b"[]"), (b"b", None), (None, b"{")]) | st.builds(
    lambda time: (None, b'{"time":%d}' % time), st.integers(0, 1500)
)
_steps = st.tuples(st.sampled_from([0, 1, 5, 30, 30, 70, 210, -20]), st.integers(1, 3))
_logs = st.lists(st.tuples(st.one_of(*[_fragments] * 7, _marks), _steps), max_size=60)


@settings(max_examples=200, deadline=None)
@given(_logs)
def test_fold_and_assembler_give_the_same_sessions(
    log: list[tuple[tuple[bytes | None, bytes | None], tuple[int, int]]],
) -> None:
    """Both implementations give the same sessions for any log: offsets, times, reasons, fragments."""
    offsets = list(accumulate((step[1] for _, step in log), initial=0))[1:]
    times = list(accumulate((step[0] for _, step in log), initial=100))[1:]
    records = [
        Logged(offset, at, key, value)
        for offset, at, ((key, value), _) in zip(offsets, times, log, strict=True)
    ]

    assert_same_sessions(records)


def test_fold_and_assembler_remember_the_same_ids() -> None:
    """The same for logs of few keys and ids, in which most fragments are repeats."""
    for seed in range(600):
        assert_same_sessions(random_log(random.Random(seed)))


def assert_same_sessions(records: Sequence[Record]) -> None:
    """Both folds close and hold open the same sessions."""
    assembler = Assembler(SMALL)
    theirs = sorted(
        (
            *(s.key, s.first_offset, s.last_offset, s.low_t, s.last_t, s.opened_at, s.bytes),
            *(closed.reason, [digest(raw) for raw in s.data]),
        )
        for closed in assembler.feed(records) + assembler.close_due()
        for s in [closed.session]
    )
    still_open = sorted((s.key, s.first_offset, len(s.data)) for s in assembler.open.values())

    ours = _fold_log(records)
    assert theirs == sorted(
        (key, s.first_offset, s.last_offset, s.first_t, s.last_t, s.appended, s.size, s.reason, s.digests)
        for key, s, is_open in ours
        if not is_open
    )
    assert still_open == sorted((key, s.first_offset, len(s.digests)) for key, s, is_open in ours if is_open)


def _fold_log(records: Sequence[Record]) -> list[tuple[str, Expected, bool]]:
    """The audit's fold of one stream, without Spark: key, session, and whether nothing has ended it."""
    w = a = -1
    lines: dict[str, list[Line]] = {}
    marks = []
    for record in records:
        a = max(a, record.timestamp)
        read = read_record(record.key, record.value)
        if read.kind == "marker" and read.time is not None:
            marks.append(Mark(record.offset, read.time))
        if read.kind != "fragment" or record.value is None:
            continue
        at = record.timestamp
        t = at if read.time is None else min(read.time, at + SMALL.future_ms)
        size = len(record.value)
        lines.setdefault(read.key, []).append(
            Line(record.offset, at, t, w, a, read.end, read.id, size, digest(record.value))
        )
        w = max(w, t)
    markers = Markers(marks)
    sessions = []
    for key, of_key in lines.items():
        one = KeyFold(SMALL, markers)
        sessions += [(key, session, False) for each in of_key for session in one.feed(each)]
        sessions += [
            (key, session, session.closed_by is None and not one.is_due(session, Late(w, a)))
            for session in one.finish()
        ]
    return sessions
