"""What the browser tests push, and how they check the delivered sessions."""

from __future__ import annotations

import json
from collections import Counter

from shared.model.sessions import Session

NEVER_MS = 3_600_000
"""A batch time so long that fragments only leave for another reason."""
PUSH = (
    "for (let n = arguments[0]; n < arguments[1]; n++) baton.push({n, text: 'x'.repeat(arguments[2] || 0)});"
)
"""A script that pushes fragments arguments[0] … arguments[1] - 1."""
AHEAD = "const now = Date.now; Date.now = () => now() + {};"
"""A script that sets the page's clock ahead by that many milliseconds."""
TEN_MINUTES_LATER = AHEAD.format(600_000)
AFTER_A_LEASE = AHEAD.format(130_000)
"""The clock has passed the leases of crashed tabs."""


def data_of(sessions: list[Session]) -> list[list[object]]:
    """The data of each session's fragments."""
    return [[json.loads(bytes(one)).get("data") for one in session.data] for session in sessions]


def assert_each_once(sessions: list[Session], count: int) -> None:
    """One session has the fragments 0 … count - 1, each once; silence ended it, not an END."""
    (data,) = data_of(sessions)
    numbers = Counter(one["n"] for one in data if isinstance(one, dict))

    assert numbers == Counter(range(count))
    assert [session.reason for session in sessions] == ["gap"]
