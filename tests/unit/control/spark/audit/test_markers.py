"""The search for the first marker that closes a session, against a walk along all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.control.spark.audit.markers import Mark, Markers

_offsets = st.integers(0, 60)


@given(
    st.dictionaries(_offsets, st.integers(0, 9), max_size=40),
    st.integers(-1, 61),
    st.none() | _offsets,
    st.integers(0, 10),
)
def test_the_first_marker_is_found(times: dict[int, int], after: int, before: int | None, time: int) -> None:
    """Between two offsets, of all times that are late enough the first."""
    marks = [Mark(*one) for one in times.items()]
    fitting = [
        mark.offset
        for mark in sorted(marks)
        if mark.offset > after and (before is None or mark.offset < before) and mark.time >= time
    ]

    assert Markers(marks).first(after, before, time) == (fitting[0] if fitting else None)


def test_the_search_looks_at_few_markers() -> None:
    """Of a million that close nothing, a key looks at some forty and not at all of them."""
    looked_at = 0

    class Time(int):
        def __lt__(self, other: int) -> bool:
            nonlocal looked_at
            looked_at += 1
            return int(self) < other

    markers = Markers(Mark(offset, Time(0)) for offset in range(2**16))

    assert markers.first(1, None, 1) is None
    assert looked_at < 40
