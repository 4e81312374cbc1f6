"""The judge of the runs with kills: what it must find, and what it must not mind."""

from __future__ import annotations

import pytest

from tests.e2e.queue_clients import Line
from tests.e2e.queue_judge import Letter, first_handed_out, judge

LETTER = Letter(1, 1, "bad")
GOOD = [
    Line("got", "lease", 1.0, [(0, 1), (1, 1)]),
    Line("asked", "ack", 1.1, [(0, 1)]),
    Line("done", "ack", 1.2, [(0, 1)]),
    Line("asked", "reject", 1.3, [(1, 1)]),
]


def test_a_good_run_is_good() -> None:
    """Acked, or a dead letter; a lease that was asked for before the ack may come in late.

    And an ack may have had its effect without an answer.
    """
    late = [*GOOD, Line("got", "lease", 1.15, [(0, 2)])]
    silent = [*GOOD[:2], *GOOD[3:]]

    assert judge(GOOD, 2, [LETTER], 3).wrong == []
    assert judge(late, 2, [LETTER], 3).wrong == []
    assert judge(silent, 2, [LETTER], 3).wrong == []


@pytest.mark.parametrize(
    ("lines", "letters", "wrong"),
    [
        (GOOD, [], "1 is lost"),
        ([*GOOD[:2], Line("refused", "ack", 1.2, [(0, 1)])], [LETTER], "0 is lost"),
        ([*GOOD, Line("got", "lease", 1.3, [(0, 2)])], [LETTER], "0 was handed out after its ack"),
        ([*GOOD, Line("got", "lease", 1.0, [(1, 1)])], [LETTER], "1 was handed out twice as attempt 1"),
        ([*GOOD, Line("got", "lease", 1.0, [(0, 4)])], [LETTER], "0 has had attempt 4"),
        (GOOD, [Letter(1, 2, "max_attempts")], "1 is exhausted after 2 attempts"),
        (
            [*GOOD, Line("got", "lease", 1.0, [(1, 2)])],
            [LETTER],
            "the letter of 1 has 1 attempts, and attempt 2 was had",
        ),
    ],
)
def test_a_broken_promise_is_found(lines: list[Line], letters: list[Letter], wrong: str) -> None:
    """Each of them, in words."""
    assert judge(lines, 2, letters, 3).wrong == [wrong]


def test_the_order_is_that_of_the_first_leases() -> None:
    """An item that is leased again has had its place."""
    lines = [
        Line("got", "lease", 1.0, [(1, 1)]),
        Line("got", "lease", 2.0, [(0, 1), (1, 2)]),
        Line("asked", "ack", 0.5, [(2, 1)]),
    ]

    assert first_handed_out(lines) == [1, 0]
