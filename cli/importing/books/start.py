"""Finds in the ledger where an import starts: at the first line, where an earlier import ended, or nowhere.

Reads the log once to recognize it by its content. `books/plan.py` decides, `books/booking.py`
enters what follows.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from cli.http.receipts import MarkerPosition
from cli.importing.books.journal import Journal
from cli.importing.books.ledger import Begun, Ledger, PastImport, Reading
from cli.importing.books.plan import AGAIN, Continue, OnlyClose, OnlyWait, Resume, beginning_of, latest_of
from cli.importing.options import ImportOptions
from cli.importing.reading.content import ContentHash
from cli.importing.reading.lines import LineReader, open_lines
from cli.importing.reading.notes import Progress
from cli.importing.tally import Tally
from shared.errors import Conflict


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where an import starts.

    `name` is the log's name in the fragments' ids. `begun` is the import's entry in the ledger, None if the
    log cannot be recognized; `is_entered`: it is there already. `journal` is open if an import is
    resumed. `is_sent`: only the marker is missing, or it was sent to `markers`. `notice` says all this to a
    person.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    name: str
    begun: Begun | None = None
    is_entered: bool = False
    is_sent: bool = False
    markers: Sequence[MarkerPosition] = ()
    journal: Journal | None = None
    progress: Progress = field(default_factory=Progress)
    notice: str | None = None


async def find_start(
    options: ImportOptions, table: int, cluster: str, ledger: Ledger, may_close: Callable[[int], bool]
) -> Start:
    """The start of this import, into streams of a table of this version in this cluster.

    `may_close` says whether a marker may be sent at a time. Raises Conflict when lines would be sent twice.
    """
    # a pipe cannot be read twice, so it is not recognized
    if not is_file(options.file):
        return Start(name=options.name)
    past = ledger.past(target_of(options), cluster)
    lines = await _read_through(options, (one.content.size for one in past))
    known = latest_of(past, lines.content.beginnings)
    found = None if options.again else known
    match beginning_of(found, lines.imported, _reading_of(options), table, may_close, waits=options.wait):
        case Resume(earlier):
            return _resumed(earlier, ledger)
        case OnlyClose(earlier, time_ms):
            return Start(
                id=earlier.begun.id,
                name=earlier.begun.name,
                begun=earlier.begun,
                is_entered=True,
                is_sent=True,
                progress=Progress(tally=Tally(highest_time_ms=time_ms)),
                notice=f"{earlier.begun.name} was imported before; what is left to send is its marker",
            )
        case OnlyWait(earlier, markers):
            return Start(
                id=earlier.begun.id,
                name=earlier.begun.name,
                is_sent=True,
                markers=[MarkerPosition(stream, offset) for stream, offset in markers.items()],
                notice=f"{earlier.begun.name} was imported before; what is left to do is to wait",
            )
        case Continue(earlier):
            return _continued(earlier, _begun(options, earlier.begun.name, lines, table, cluster, earlier))
    begun = _begun(options, options.name, lines, table, cluster, known)
    return Start(id=begun.id, name=begun.name, begun=begun)


def is_file(file: str) -> bool:
    """Whether the log is a file, and not standard input or another pipe."""
    return Path(file).is_file()


def target_of(options: ImportOptions) -> str:
    """How the ledger names the target."""
    return options.url.rstrip("/")


def now_text() -> str:
    """The time of an entry, RFC 3339."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _begun(
    options: ImportOptions, name: str, lines: LineReader, table: int, cluster: str, known: PastImport | None
) -> Begun:
    """The entry of a new import; `known`: an earlier one of the same log, whose origin it keeps."""
    return Begun(
        id=uuid.uuid4().hex[:12],
        at=now_text(),
        target=target_of(options),
        file=str(Path(options.file).absolute()),
        name=name,
        content=lines.imported,
        reading=_reading_of(options),
        table=table,
        cluster=cluster,
        origin=lines.imported.digest if known is None else known.begun.origin,
    )


def _resumed(earlier: PastImport, ledger: Ledger) -> Start:
    begun = earlier.begun
    # locked from here on, so that no other process continues it too
    journal = Journal(ledger.journal_of(begun.id), is_new=False)
    progress = journal.read()
    if progress is None:
        raise Conflict(f"{begun.name} was imported in part, but the journal says nothing: {AGAIN}")
    progress = progress.started_anew()
    settled = progress.tally.accepted + progress.tally.rejected
    return Start(
        id=begun.id,
        # the same name, so that what was in flight gets the same ids
        name=begun.name,
        begun=begun,
        is_entered=True,
        journal=journal,
        progress=progress,
        notice=f"Resumed the import of {begun.at}: {settled:,} lines of it were sent",
    )


def _continued(earlier: PastImport, begun: Begun) -> Start:
    sent = earlier.sent
    assert sent is not None
    # the counts are those of the new lines; but a marker that is missing is still to be sent
    tally = Tally(highest_time_ms=None if earlier.closed else sent.tally.highest_time_ms)
    return Start(
        id=begun.id,
        name=begun.name,
        begun=begun,
        progress=Progress(floor=sent.lines, tally=tally),
        notice=f"Continued after line {sent.lines:,}, where the log ended at the import of {sent.at}",
    )


def _reading_of(options: ImportOptions) -> Reading:
    return Reading(form=options.form, **msgspec.structs.asdict(options.fields))


async def _read_through(options: ImportOptions, sizes: Iterable[int]) -> LineReader:
    """A reader that has read all of the log, and knows its beginnings of these sizes."""
    with open_lines(options.file, ends=options.close) as lines:
        lines.content = ContentHash(sizes)
        for _ in iter(lines.read_bytes, None):
            # a large log takes seconds, in which Ctrl-C must get through
            await asyncio.sleep(0)
        return lines
