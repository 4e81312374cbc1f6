"""Decides from the ledger how an import begins: anew, where an earlier one ended, or not at all.

Pure. `cli/importing/booking.py` reads the ledger and carries the decision out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from cli.importing.ledger import Content, PastImport, Reading
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


Beginning = Anew | Resume | Continue | OnlyClose


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
) -> Beginning:
    """How to import a log of this content, of which `found` is the latest import.

    `may_close` says whether a marker may be sent at a time. Raises Conflict when lines would be sent twice.
    """
    if found is None:
        return Anew()
    begun, sent = found.begun, found.sent
    where = f"{begun.name} was imported into {begun.target}"
    if sent is not None and found.content == content:
        highest_ms = sent.tally.highest_time_ms
        is_open = not found.is_closed and highest_ms is not None
        if is_open and highest_ms is not None and may_close(highest_ms):
            return OnlyClose(found, highest_ms)
        hint = "`--close` closes its sessions" if is_open else "`baton streams` shows what is left to read"
        raise Conflict(f"{where} at {sent.at}: {hint}, and {AGAIN}")
    if begun.reading != reading:
        part = "in part" if sent is None else "before it grew"
        raise Conflict(f"{where} {part}, but {begun.reading.difference(reading)}: {AGAIN}")
    if sent is not None:
        return Continue(found)
    # the places of an interrupted import are those of the streams
    if begun.table != table:
        raise Conflict(f"{where} in part, but into other streams: {AGAIN}")
    return Resume(found)
