"""Finds the sessions that a marker closes, in parts, so that other streams go on meanwhile.

Pure. A marker looks at every open session, which may be hundreds of thousands, so the fold must be able to
stop in between and continue in the next turn. `fold.py` closes what this finds (rule 2), and limits with the
same number what silence closes in one turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from services.consumer.core.sessions.state import OpenSession

SEARCHED_AT_ONCE = 20_000
"""How many open sessions a marker looks at before the fold stops to give way: 2 to 6 ms."""
CLOSED_AT_ONCE = 1_000
"""How many sessions a marker or silence closes before the fold stops to give way: 4 to 10 ms."""


def due_by(time_ms: int, opened: Iterable[OpenSession]) -> Iterator[OpenSession | None]:
    """Those of the open sessions that a marker closes, in the same order.

    A None after each part of the search, and between the sessions, says that it is time to give way. The open
    sessions must not change until the first of them is closed.
    """
    due: list[OpenSession] = []
    sessions = iter(opened)
    while part := list(islice(sessions, SEARCHED_AT_ONCE)):
        due += [session for session in part if session.last_t <= time_ms]
        if len(part) == SEARCHED_AT_ONCE:
            yield None
    for number, session in enumerate(_taking(due)):
        if number and number % CLOSED_AT_ONCE == 0:
            yield None
        yield session


def _taking(sessions: list[OpenSession]) -> Iterator[OpenSession]:
    """The sessions, each removed from the list: freeing 100,000 closed ones at the end would be one step of
    20 ms.
    """
    sessions.reverse()
    while sessions:
        yield sessions.pop()
