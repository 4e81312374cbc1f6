"""A marker's search gives way after a bounded number of sessions."""

from __future__ import annotations

import pytest

from services.consumer.core.sessions import marker_search
from services.consumer.core.sessions.marker_search import due_by
from services.consumer.core.sessions.state import OpenSession


def test_a_search_gives_way_after_so_many_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at all of them once, and finds those that are due in order."""
    monkeypatch.setattr(marker_search, "SEARCHED_AT_ONCE", 20)
    monkeypatch.setattr(marker_search, "CLOSED_AT_ONCE", 15)
    sessions = []
    for n in range(100):
        session = OpenSession(f"k{n}", n, 0, 0, 0, 0)
        session.last_offset, session.last_t = n, n % 2
        sessions.append(session)

    found = list(due_by(0, sessions))

    assert [session for session in found if session is not None] == sessions[::2]
    assert found[:5] == [None] * (100 // 20)
    assert [at for at, session in enumerate(found[5:]) if session is None] == [15, 31, 47]
