"""The judge of the runs with kills: what it must find, and what it must not mind."""

from __future__ import annotations

import pytest

from tests.e2e.queue_clients import Line
from tests.e2e.queue_judge import judge

GOOD = [
    Line("got", "lease", 1.0, [(0, 1), (1, 1)]),
    Line("asked", "ack", 1.1, [(0, 1)]),
    Line("done", "ack", 1.2, [(0, 1)]),
    Line("asked", "reject", 1.3, [(1, 1)]),
]


def test_a_good_run_is_good() -> None:
    """Acked, or a dead letter; a lease that was asked for before the ack may come in late."""
    late = [*GOOD, Line("got", "lease", 1.15, [(0, 2)])]

    assert judge(GOOD, 2, [1], 3).wrong == []
    assert judge(late, 2, [1], 3).wrong == []


@pytest.mark.parametrize(
    ("lines", "letters", "wrong"),
    [
        (GOOD, [], "1 is lost"),
        ([*GOOD, Line("got", "lease", 1.3, [(0, 2)])], [1], "0 was handed out after its ack"),
        ([*GOOD, Line("got", "lease", 1.0, [(1, 1)])], [1], "1 was handed out twice as attempt 1"),
        ([*GOOD, Line("got", "lease", 1.0, [(1, 4)])], [1], "1 has had attempt 4"),
    ],
)
def test_a_broken_promise_is_found(lines: list[Line], letters: list[int], wrong: str) -> None:
    """Each of them, in words."""
    assert judge(lines, 2, letters, 3).wrong == [wrong]
