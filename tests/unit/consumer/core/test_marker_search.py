"""A marker's search gives way after a bounded number of sessions, however they are divided."""

from __future__ import annotations

import pytest

from services.consumer.core.sessions import marker_search
from services.consumer.core.sessions.marker_search import due_by
from services.consumer.core.sessions.state import OpenSession


@pytest.mark.parametrize("run", [1, 7, 10, 1_000])
def test_a_search_gives_way_after_so_many_sessions(run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at all of them once, in runs of any length, and finds those that are due in order."""
    monkeypatch.setattr(marker_search, "SEARCHED_AT_ONCE", 20)
    monkeypatch.setattr(marker_search, "CLOSED_AT_ONCE", 15)
    sessions = []
    for n in range(100):
        session = OpenSession(f"k{n}", n, 0, 0, 0, 0)
        session.last_offset, session.last_t = n, n % 2
        sessions.append(session)
    runs = [sessions[at : at + run] for at in range(0, 100, run)]

    found = list(due_by(0, runs))

    assert [session for session in found if session is not None] == sessions[::2]
    searched = found.index(sessions[0])
    assert found[:searched] == [None] * searched
    assert 100 // (20 + min(run, 20)) <= searched <= 100 // 20
    assert [at for at, session in enumerate(found[searched:]) if session is None] == [15, 31, 47]
