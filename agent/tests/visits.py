"""What the browser tests push, and what they hold the delivered sessions to."""

from __future__ import annotations

import json
from collections import Counter

from shared.model.sessions import Session

NEVER_MS = 3_600_000
"""So long do fragments wait for their batch where only something else shall send them."""
PUSH = (
    "for (let n = arguments[0]; n < arguments[1]; n++) baton.push({n, text: 'x'.repeat(arguments[2] || 0)});"
)
"""A script that pushes fragments arguments[0] … arguments[1] - 1."""
TEN_MINUTES_LATER = "const now = Date.now; Date.now = () => now() + 600000;"
"""A script that sets a page's clock ahead."""


def data_of(sessions: list[Session]) -> list[list[object]]:
    """The data of each session's fragments."""
    return [[json.loads(bytes(one)).get("data") for one in session.data] for session in sessions]


def assert_each_once(sessions: list[Session], count: int) -> None:
    """One session holds the fragments 0 … count - 1, each once, and silence ended it, no END."""
    (data,) = data_of(sessions)
    numbers = Counter(one["n"] for one in data if isinstance(one, dict))

    assert numbers == Counter(range(count))
    assert [session.reason for session in sessions] == ["gap"]
