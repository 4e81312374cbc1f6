"""Whether retention has cost an audit records: by what its readers report, and where the topic begins now."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from services.control.spark.audit import sources
from services.control.spark.audit.judging import LOG_READ, TOPIC_READ
from services.control.spark.audit.sources import Source

START, END = 10, 50
LOG = ("fragments.0003", 0)


class Report(NamedTuple):
    """A row of what was read."""

    kind: str
    n: int
    stream: int
    detail: str


def read_from(first: int, gap: int = -1, stream: int = 3, kind: str = LOG_READ) -> Report:
    return Report(kind, first, stream, str(gap))


@pytest.mark.parametrize(
    ("begins", "reports", "lost"),
    [
        # the topic begins where it did: nothing can be lost, whatever the gaps are
        (10, [read_from(10, gap=20)], 0),
        (10, [], 0),
        # it begins later, and all was read before
        (30, [read_from(10)], 0),
        (30, [read_from(10, gap=31)], 0),
        # the reading began later, or jumped to a beginning of that time
        (30, [read_from(30)], 20),
        (30, [read_from(10, gap=25)], 20),
        (30, [read_from(10), read_from(10, gap=25)], 20),
        # nothing was read, or only others were
        (60, [], 40),
        (30, [read_from(10, stream=4), read_from(10, kind=TOPIC_READ)], 20),
    ],
)
def test_a_loss_is_noticed(
    monkeypatch: pytest.MonkeyPatch, begins: int, reports: list[Report], lost: int
) -> None:
    """With the number of offsets that went. A gap above the beginning is one of transactions."""
    monkeypatch.setattr(sources, "offsets", lambda *_: {LOG: begins})
    source = Source(start={LOG: START}, end={LOG: END}, numbers={LOG: 3}, kind=LOG_READ)
    nothing: Any = None

    class Request:
        kafka = ""

    request: Any = Request()

    assert source.lost(nothing, request, reports) == lost


def test_a_source_that_starts_ahead_leaves_out_what_goes_next() -> None:
    """In all partitions, at least a hundredth of each, and at most half."""
    other, quiet, empty = ("fragments.0004", 0), ("fragments.0005", 0), ("fragments.0006", 0)
    source = Source(
        start={LOG: START, other: 0, quiet: 7, empty: 3},
        end={LOG: END, other: 5_000, quiet: 10, empty: 3},
        numbers={LOG: 3, other: 4, quiet: 5, empty: 6},
        kind=LOG_READ,
    )

    ahead = source.ahead(10)

    assert ahead.start == {LOG: 20, other: 50, quiet: 9, empty: 3}
    assert (ahead.end, ahead.skipped) == (source.end, 10 + 50 + 2)
    assert source.ahead(0) == source
