"""The log that a demo imports: generated, with known sessions, or a real one whose format is guessed.

The guess uses only the first lines: a JSON object, a header with tabs or commas, else the common log format
of web servers. Options of the command line override it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cli.importing.parsing.formats import USUAL_FIELDS, Format, parser_for
from cli.importing.parsing.rows import Fields, LineUnreadable
from cli.importing.reading.lines import Line, open_lines
from cli.importing.reading.records import records_for
from cli.visits.generator import Visits, generate
from shared.errors import BatonError, InvalidInput

KEYS = ("key", "host", "visitor", "device", "user")
"""Names of key fields; the first one present is used."""
TIMES = ("time", "timestamp", "ts")
ITEMS = ("path", "url", "page")
"""Names of fields whose values the reports count; the first one present is used."""
ACCESS_ITEM = "path"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoLog:
    """A log to import. `lines` is about how many it has; `visits` holds its sessions, if they are known."""

    path: Path
    form: Format
    fields: Fields
    item_path: str
    lines: int
    visits: Visits | None = None


def generated_log(folder: Path, visitors: int, seed: int) -> DemoLog:
    """A generated log of that many visitors, written to `folder`. Deterministic in visitors and seed."""
    visits = generate(visitors, seed)
    path = folder / "visits.ndjson"
    with path.open("wb") as file:
        file.writelines(msgspec.json.encode(line) + b"\n" for line in visits.lines)
    return DemoLog(
        path=path,
        form="ndjson",
        fields=Fields(key="key", time="time", end="end"),
        item_path="$.data.path",
        lines=len(visits.lines),
        visits=visits,
    )


def real_log(
    path: Path, form: Format | None, key: str | None, time: str | None, end: str | None, item_path: str | None
) -> DemoLog:
    """The log at `path`; arguments that are None are guessed.

    Raises InvalidInput when the guess fails, BatonError when there is no such file.
    """
    if not path.is_file():
        raise BatonError(f"there is no file {path}")
    head, lines = _read_head(path)
    if not head:
        raise InvalidInput(f"{path} has no lines")
    form = form or format_of(head)
    names = field_names(head[0], form)
    key = key or _first(KEYS, names)
    time = time or _first(TIMES, names)
    if not key or not time:
        raise InvalidInput(
            f"{path} looks like {form}, but its key and time fields are unknown: give --key and --time"
        )
    # an NDJSON line may have `end` only where it is true, so the first line need not show it
    if end is None and (form == "ndjson" or "end" in names):
        end = "end"
    fields = Fields(key=key, time=time, end=end)
    _check(path, form, fields, head)
    # the reports need a path; one that matches nothing gives an empty table, not an error
    item = _first(ITEMS, names) or ITEMS[0]
    return DemoLog(path=path, form=form, fields=fields, item_path=item_path or f"$.data.{item}", lines=lines)


def format_of(head: list[bytes]) -> Format:
    """The likely format of a log, from its first lines.

    >>> format_of([b"host\\ttime", b"a\\t1"]), format_of([b'{"key": "a"}'])
    ('tsv', 'ndjson')
    """
    first = head[0].lstrip()
    if first.startswith(b"{"):
        return "ndjson"
    # before tabs and commas, which may occur in a user agent
    if b"[" in first and b'"' in first:
        return "access-log"
    if b"\t" in first:
        return "tsv"
    return "csv" if b"," in first else "access-log"


def field_names(first: bytes, form: Format) -> list[str]:
    """The names of a log's fields, from its first line."""
    text = first.decode(errors="replace")
    match form:
        case _ if form in USUAL_FIELDS:
            return [*USUAL_FIELDS[form], ACCESS_ITEM]
        case "tsv":
            return text.split("\t")
        case "csv":
            return next(csv.reader([text]))
        case _:
            try:
                return list(msgspec.json.decode(first, type=dict[str, msgspec.Raw]))
            except msgspec.DecodeError:
                return []


def _read_head(path: Path) -> tuple[list[bytes], int]:
    """The first three lines that are not blank, and how many there are in all."""
    head: list[bytes] = []
    count = 0
    # the whole log is read: the incidents need to know how much of it is in Kafka
    with open_lines(str(path), ends=True) as lines:
        while (block := lines.read_block()) is not None:
            # a line that is too long counts too, since the import reports it
            found = [line.raw for line in block if line.raw is None or line.raw.strip()]
            count += len(found)
            if len(head) < 3:
                head += [raw.rstrip(b"\r") for raw in found[:3] if raw is not None]
    return head[:3], count


def _check(path: Path, form: Format, fields: Fields, head: list[bytes]) -> None:
    """Parses the first lines, so that a wrong guess is reported before anything starts."""
    parser, records = parser_for(form, fields), records_for(form)
    found = [record for n, raw in enumerate(head, 1) for record in records.feed(Line(n, raw))]
    try:
        rows = [row for record in [*found, *records.finish()] if (row := parser.feed(record.raw or b""))]
    except LineUnreadable as error:
        raise InvalidInput(
            f"{path} cannot be read as {form}, {error.detail}: give --format, --key, --time"
        ) from None
    if not rows:
        raise InvalidInput(f"{path} has no lines except a header")


def _first(candidates: Iterable[str], names: list[str]) -> str | None:
    return next((name for name in candidates if name in names), None)
