"""How the lines of a CSV become records, and what a stray quote costs."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Iterable
from typing import Any, SupportsIndex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.http.receipts import Receipt
from cli.importing.parsing.rows import Fields
from cli.importing.reading.lines import Line, LineReader
from cli.importing.reading.notes import Notes, Progress
from cli.importing.sending.lanes import BatchLimits
from cli.importing.sending.pipeline import send_log
from cli.importing.tally import Tally
from shared.model.routing import initial_table


class ReadyLines(LineReader):
    """A log whose lines are here already."""

    def __init__(self, raws: Iterable[bytes]) -> None:
        super().__init__(io.BytesIO(), io.BytesIO(), None)
        self._lines: list[Line] | None = [Line(number, raw) for number, raw in enumerate(raws, 1)]

    def read_block(self) -> list[Line] | None:
        """All lines at once, then the end."""
        lines, self._lines = self._lines, None
        return lines


def csv_imported(raws: Iterable[bytes]) -> tuple[Tally, list[dict[str, Any]]]:
    """The counts of an import of these lines below the header `k,t,x`, and the rows that were sent."""
    sent: list[dict[str, Any]] = []

    async def post(body: bytes) -> Receipt:
        fragments = [json.loads(raw) for raw in body.split(b"\n")]
        sent.extend(fragment["data"] for fragment in fragments)
        return Receipt(accepted=len(fragments))

    tally = Tally()
    asyncio.run(
        send_log(
            ReadyLines([b"k,t,x", *raws]),
            "csv",
            Fields(key="k", time="t"),
            name="log",
            table=initial_table(1),
            post=post,
            lanes=1,
            limits=BatchLimits(),
            notes=Notes(Progress(tally=tally)),
        )
    )
    return tally, sent


@pytest.mark.parametrize("lines", [20, 60_000])
def test_a_quote_that_is_never_closed_costs_its_own_line(lines: int) -> None:
    """At the end of the log, or beyond the size of a record, the lines after it become records again."""
    raws = [b"k%d,%d,some text" % (n, n) for n in range(lines)]
    raws[2] = b'k2,2,"oops'

    tally, sent = csv_imported(raws)

    assert [row["k"] for row in sent] == [f"k{n}" for n in range(lines) if n != 2]
    assert (tally.lines, tally.parsed, tally.unparsed) == (lines, lines - 1, 1)
    # the header is line 1
    assert [(reason, found.line) for reason, found in tally.reasons.items()] == [("malformed", 4)]
    assert "never closed" in tally.reasons["malformed"].detail


def test_a_quote_that_a_later_one_closes_names_the_lines_that_it_joined() -> None:
    """The opening line comes first, and each line that is lost counts."""
    raws = [b"k%d,%d,plain" % (n, n) for n in range(9)]
    raws[2], raws[5] = b'k2,2,"oops', b'"k5",5,"fine"'

    tally, sent = csv_imported(raws)

    assert [row["k"] for row in sent] == ["k0", "k1", "k6", "k7", "k8"]
    assert (tally.lines, tally.unparsed) == (9, 4)
    found = tally.reasons["malformed"]
    assert (found.count, found.line) == (4, 4)
    assert "lines 4 to 7" in found.detail


def test_a_quote_inside_an_unquoted_cell_is_text() -> None:
    """It opens nothing, in whatever number."""
    _, sent = csv_imported([b'a,1,5" pipe', b"b,2,plain"])

    assert [row["x"] for row in sent] == ['5" pipe', "plain"]


def test_a_line_end_within_a_cell_stays_as_it_is() -> None:
    """CRLF between lines is no part of a cell, but within quotes it is."""
    _, sent = csv_imported([b'a,1,"one\r', b'two\r"\r', b"b,2,plain\r"])

    assert [row["x"] for row in sent] == ["one\r\ntwo\r", "plain"]


class CountedBytes(bytes):
    """Bytes that add up in `work` how many of them were searched or copied."""

    work = 0

    def __add__(self, other: Any) -> CountedBytes:
        CountedBytes.work += len(self) + len(other)
        return CountedBytes(super().__add__(other))

    def __radd__(self, other: bytes) -> CountedBytes:
        CountedBytes.work += len(self) + len(other)
        return CountedBytes(other + bytes(self))

    def count(self, sub: Any, *bounds: Any) -> int:
        CountedBytes.work += len(self)
        return super().count(sub, *bounds)

    def find(self, sub: Any, start: SupportsIndex | None = 0, end: SupportsIndex | None = None) -> int:
        at, begin = super().find(sub, start, end), int(start or 0)
        CountedBytes.work += (len(self) if at < 0 else at + 1) - begin
        return at


@pytest.mark.parametrize("opening", [b'k,1,"oops', b'"k","1'], ids=["one stray quote", "one in each line"])
def test_stray_quotes_take_linear_time(opening: bytes) -> None:
    """Each byte is looked at a few times, however many lines a quote joins."""
    rest = opening if opening.startswith(b'"') else b"k,2,some text"
    raws = [CountedBytes(opening), *[CountedBytes(rest)] * 29_000]
    CountedBytes.work = 0

    tally, _ = csv_imported(raws)

    assert CountedBytes.work <= 6 * sum(map(len, raws))
    assert tally.lines == len(raws)


TEXTS = st.text(st.sampled_from('ab ,"\n'), max_size=12)


@given(st.lists(TEXTS, max_size=12))
def test_whatever_a_csv_writer_writes_is_read(texts: list[str]) -> None:
    """Quotes, separators and line ends in quoted cells survive."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(["k", n, text] for n, text in enumerate(texts))

    tally, sent = csv_imported(file.getvalue().encode().split(b"\n")[:-1])

    assert [row["x"] for row in sent] == texts
    assert tally.all_accepted
