"""What control concludes about a log from a head and two of its records."""

from __future__ import annotations

import pytest

from services.control.core.groups.rewinds import LogState, log_state
from shared.model.head import Head


def committed(position: int = 10, appended: int = 500, closing: int = -1) -> Head:
    return Head(epoch=1, seq=1, position=position, safe_offset=position, appended=appended, closing=closing)


@pytest.mark.parametrize(
    ("head", "end", "first_a", "last_a", "expected"),
    [
        (None, 0, None, None, "same"),
        (committed(), 12, 100, 500, "same"),
        (committed(appended=-1), 12, 100, 499, "same"),
        # retention has taken the record before the position
        (committed(), 12, 600, None, "same"),
        (committed(), 0, None, None, "anew"),
        (committed(), 3, 600, None, "anew"),
        (committed(), 12, 600, 900, "anew"),
        # the record at the position has closed sessions already
        (committed(closing=550), 12, 100, 550, "same"),
        (committed(closing=550), 10, 100, None, "cut"),
        (committed(closing=550), 12, 100, 560, "cut"),
        (committed(closing=550), 12, 560, 900, "anew"),
        # an unclean election cut its end
        (committed(), 8, 100, None, "cut"),
        (committed(), 12, 100, 900, "cut"),
        (committed(appended=-1), 3, 600, None, "cut"),
    ],
)
def test_a_log_that_was_made_anew_holds_only_younger_records(
    head: Head | None, end: int, first_a: int | None, last_a: int | None, expected: LogState
) -> None:
    """One that lost its end still begins with what was committed."""
    assert log_state(head, end, first_a, last_a) == expected
