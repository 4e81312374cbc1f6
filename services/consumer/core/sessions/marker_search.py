"""Finds the sessions that a marker closes, in parts, so that other streams go on meanwhile.

Pure. A marker looks at every open session, which may be hundreds of thousands, so the fold must be able to
stop in between and continue in the next turn. `fold.py` closes what this finds (rule 2), and limits with the
same number what silence closes in one turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from services.consumer.core.sessions.open_table import in_order
from services.consumer.core.sessions.state import OpenSession

SEARCHED_AT_ONCE = 20_000
"""How many open sessions a marker looks at before the fold stops to give way: 2 to 6 ms."""
CLOSED_AT_ONCE = 1_000
"""How many sessions a marker or silence closes before the fold stops to give way: 4 to 10 ms."""


def due_by(time_ms: int, runs: Iterable[Iterable[OpenSession]]) -> Iterator[OpenSession | None]:
    """The sessions that a marker closes, in order of last fragments; `runs`: all open ones, in several
    iterables that are each in that order. A None after each part of the search, and between the sessions,
    says that it is time to give way. The open sessions must not change until the first of them is closed.
    """
    found: list[list[OpenSession]] = []
    looked_at = 0
    for run in runs:
        due: list[OpenSession] = []
        sessions = iter(run)
        while part := list(islice(sessions, SEARCHED_AT_ONCE)):
            due += [session for session in part if session.last_t <= time_ms]
            looked_at += len(part)
            if looked_at >= SEARCHED_AT_ONCE:
                looked_at = 0
                yield None
        found.append(due)
    for number, session in enumerate(in_order(map(_taking, found))):
        if number and number % CLOSED_AT_ONCE == 0:
            yield None
        yield session


def _taking(sessions: list[OpenSession]) -> Iterator[OpenSession]:
    """The sessions, each removed from the list: freeing 400,000 closed ones at the end would be one step of
    90 ms.
    """
    sessions.reverse()
    while sessions:
        yield sessions.pop()
