"""Decides from the ledger how an import begins: anew, where an earlier one ended, at its end, or not at all.

Pure. `books/start.py` reads the ledger and carries the decision out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from cli.importing.books.ledger import PastImport, Reading, Sent
from cli.importing.reading.content import Content
from shared.errors import Conflict

AGAIN = "`--again` sends all of it"


@dataclass(frozen=True, slots=True)
class Anew:
    """Send every line."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Continue an import that was interrupted."""

    past: PastImport


@dataclass(frozen=True, slots=True)
class Continue:
    """Send what has been added to a log since all of it was sent."""

    past: PastImport


@dataclass(frozen=True, slots=True)
class OnlyClose:
    """Send only the marker at this time, which is missing."""

    past: PastImport
    time_ms: int


@dataclass(frozen=True, slots=True)
class OnlyWait:
    """Send nothing, and wait for the sessions up to the marker, which has these offsets in its streams."""

    past: PastImport
    markers: Mapping[int, int]


Beginning = Anew | Resume | Continue | OnlyClose | OnlyWait


def latest_of(past: Iterable[PastImport], beginnings: Collection[Content]) -> PastImport | None:
    """The import of the longest of these beginnings of a log; of several, the one that began last."""
    known = [one for one in past if one.content in beginnings and one.content.size > 0]
    # `max` returns the first of several, and the last one says how things are
    return max(reversed(known), key=lambda one: one.content.size, default=None)


def beginning_of(
    found: PastImport | None,
    content: Content,
    reading: Reading,
    table: int,
    may_close: Callable[[int], bool],
    *,
    waits: bool,
) -> Beginning:
    """How to import a log of this content, of which `found` is the latest import.

    `may_close` says whether a marker may be sent at a time, `waits` whether to wait for the sessions. Raises
    Conflict when lines would be sent twice.
    """
    if found is None:
        return Anew()
    begun, sent = found.begun, found.sent
    where = f"{begun.name} was imported into {begun.target}"
    if sent is not None and found.content == content:
        return _what_is_left(found, sent, may_close, waits=waits, where=f"{where} at {sent.at}")
    if begun.reading != reading:
        part = "in part" if sent is None else "before it grew"
        raise Conflict(f"{where} {part}, but {begun.reading.difference(reading)}: {AGAIN}")
    if sent is not None:
        return Continue(found)
    # the places of an interrupted import are those of the streams
    if begun.table != table:
        raise Conflict(f"{where} in part, but into other streams: {AGAIN}")
    return Resume(found)


def _what_is_left(
    found: PastImport, sent: Sent, may_close: Callable[[int], bool], *, waits: bool, where: str
) -> Beginning:
    """What may follow when every line was sent."""
    highest_ms = sent.tally.highest_time_ms
    if found.closed is None and highest_ms is not None:
        if may_close(highest_ms):
            return OnlyClose(found, highest_ms)
        raise Conflict(f"{where}: `--close` closes its sessions, and {AGAIN}")
    markers = found.closed.markers if found.closed is not None else {}
    if waits and markers:
        return OnlyWait(found, markers)
    hint = "`--wait` waits for its sessions" if markers else "`baton streams` shows what is left to read"
    raise Conflict(f"{where}: {hint}, and {AGAIN}")
