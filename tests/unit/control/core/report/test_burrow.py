"""A stream's status follows from how its lag and its commits move, without a threshold."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from services.control.core.report.burrow import Sample, Status, Window

WINDOW_MS = 5000


def window_of(rows: list[Sample]) -> Window:
    """The window after these samples."""
    window = Window(WINDOW_MS)
    for row in rows:
        window.add(row)
    return window


def samples(*rows: tuple[int, int, int]) -> list[Sample]:
    """One sample a second from (position, end, seq)."""
    return [
        Sample(at_ms=at * 1000, position=position, end=end, commit=(1, seq))
        for at, (position, end, seq) in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("status", "rows"),
    [
        pytest.param("OK", [(10, 10, 1)] * 6, id="no lag and nothing new"),
        pytest.param("OK", [(10, 20, 1)] * 5, id="the window is not spanned yet"),
        pytest.param("OK", [(10, 20, 1)] * 3 + [(20, 20, 2)] + [(20, 30, 2)] * 3, id="no lag for a moment"),
        pytest.param("OK", [(n * 10, 100, n) for n in range(6)], id="a backlog that shrinks"),
        pytest.param("OK", [(n * 10, n * 10 + 5, n) for n in range(6)], id="a steady lag"),
        pytest.param(
            "OK",
            [(0, 5, 0), (10, 12, 1), (20, 29, 2), (30, 33, 3), (40, 49, 4), (50, 51, 5)],
            id="lag up and down",
        ),
        pytest.param("OK", [(0, 5, 0), *[(1, 10 + n, 1) for n in range(5)]], id="one commit is no trend"),
        pytest.param("WARN", [(n * 10, n * 20 + 1, n) for n in range(6)], id="progress, but falling behind"),
        pytest.param(
            "WARN",
            [(0, 5, 0), (10, 20, 1), (10, 20, 1), (20, 40, 2), (30, 60, 3), (30, 60, 3)],
            id="the least number of commits that is a trend",
        ),
        pytest.param("STOP", [(10, 20 + n, 1) for n in range(6)], id="lag and not a single commit"),
        pytest.param("STOP", [(0, 1, 0)] * 6, id="lag and nobody ever committed"),
        pytest.param("STALL", [(10, 20, n) for n in range(6)], id="commits that do not advance"),
        pytest.param("REWIND", [(10, 20, 1), (9, 20, 2)], id="the position went back"),
        pytest.param("REWIND", [(10, 20, 1), (9, 20, 2), (20, 20, 3)], id="it went back within the window"),
        pytest.param("REWIND", [(10, 4, 1)], id="the log ends below the position"),
    ],
)
def test_the_status_follows_from_the_window(status: Status, rows: list[tuple[int, int, int]]) -> None:
    """Each of Burrow's words describes one pattern of lag and commits."""
    assert window_of(samples(*rows)).status() == status


def test_a_new_owners_commit_counts() -> None:
    """(epoch, seq) identifies a commit, because the next owner's seq may repeat."""
    rows = [Sample(at_ms=n * 1000, position=10, end=20, commit=(n // 3, 7)) for n in range(6)]

    assert window_of(rows).status() == "STALL"


def test_the_status_is_what_the_rules_say_of_every_sample() -> None:
    """However it is computed, the status is what follows from a plain reading of Burrow's rules."""
    found = set()
    for seed in range(3_000):
        rows = random_samples(random.Random(seed))

        window = window_of(rows)
        status = window.status()

        assert status == plain_status(list(window.samples)), f"seed {seed}"
        found.add(status)

    assert found == {"OK", "WARN", "STOP", "STALL", "REWIND"}


def random_samples(chance: random.Random) -> list[Sample]:
    """One to fifteen samples whose positions mostly advance and whose ends grow at one of three paces."""
    position, seq, rows, pace = 10, 1, [], chance.choice((0, 4, 12))
    end = position + chance.randrange(20)
    back = chance.choice((0, 0, 0, 1))
    advance = chance.choice((0, 6))
    for _ in range(chance.randrange(1, 16)):
        rows.append((position, end, seq))
        end += chance.randrange(pace + 1)
        seq += chance.randrange(2)
        position = max(0, min(position + chance.randint(-back, advance), end + back))
    return samples(*rows)


def plain_status(rows: list[Sample]) -> Status:
    """The rules, word for word and over all samples."""
    if rows[-1].lag < 0 or any(later.position < earlier.position for earlier, later in pairwise(rows)):
        return "REWIND"
    if any(row.lag == 0 for row in rows) or rows[-1].at_ms - rows[0].at_ms < WINDOW_MS:
        return "OK"
    if rows[-1].commit == rows[0].commit:
        return "STOP"
    if rows[-1].position == rows[0].position:
        return "STALL"
    lags = [later.lag for earlier, later in pairwise(rows) if later.position > earlier.position]
    grows = all(later > earlier for earlier, later in pairwise(lags))
    return "WARN" if len(lags) >= 3 and grows else "OK"
