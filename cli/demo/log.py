"""The log that a demo imports: made up with known truth, or a real one whose format is guessed.

The guess looks at the first lines alone: a JSON object, a header with tabs or commas, else the common log
format of web servers. Whatever the command line says goes first.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cli.generating import Visits, generate
from cli.importing.formats import Fields, Format, LineUnreadable, parser_for
from cli.importing.lines import open_lines
from shared.errors import BatonError, InvalidInput

KEYS = ("key", "host", "visitor", "device", "user")
"""Fields that are taken for the key, the first that there is."""
TIMES = ("time", "timestamp", "ts")
ITEMS = ("path", "url", "page")
"""Fields whose values the reports count."""
ACCESS_ITEM = "path"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoLog:
    """A log to import. `lines` is how many it has, about; `visits` its truth, where that is known."""

    path: Path
    form: Format
    fields: Fields
    item_path: str
    lines: int
    visits: Visits | None = None


def made_up(folder: Path, visitors: int, seed: int) -> DemoLog:
    """A log of so many visitors, written into `folder`. Deterministic in visitors and seed."""
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


def real(
    path: Path, form: Format | None, key: str | None, time: str | None, end: str | None, item_path: str | None
) -> DemoLog:
    """The log at `path`; what is None is guessed.

    Raises InvalidInput when it cannot be guessed, BatonError when the log cannot be read.
    """
    if not path.is_file():
        raise BatonError(f"there is no file {path}")
    head, lines = _look_into(path)
    if not head:
        raise InvalidInput(f"{path} holds no lines")
    form = form or format_of(head)
    names = field_names(head[0], form)
    key = key or _first(KEYS, names)
    time = time or _first(TIMES, names)
    if not key or not time:
        raise InvalidInput(
            f"{path} looks like {form}, but no field is named like a key and a time: give --key and --time"
        )
    if end is None and form != "access-log" and "end" in {*names, *(["end"] if form == "ndjson" else [])}:
        end = "end"
    fields = Fields(key=key, time=time, end=end)
    _check(path, form, fields, head)
    item = _first(ITEMS, names) or ITEMS[0]
    return DemoLog(path=path, form=form, fields=fields, item_path=item_path or f"$.data.{item}", lines=lines)


def format_of(head: list[bytes]) -> Format:
    """The format that a log's first lines look like.

    >>> format_of([b"host\\ttime", b"a\\t1"]), format_of([b'{"key": "a"}'])
    ('tsv', 'ndjson')
    """
    first = head[0].lstrip()
    if first.startswith(b"{"):
        return "ndjson"
    if b"[" in first and b'"' in first:
        return "access-log"
    if b"\t" in first:
        return "tsv"
    return "csv" if b"," in first else "access-log"


def field_names(first: bytes, form: Format) -> list[str]:
    """The names of the fields of a line, as the first line tells them."""
    text = first.decode(errors="replace")
    match form:
        case "access-log":
            return ["host", "time", ACCESS_ITEM]
        case "tsv":
            return text.split("\t")
        case "csv":
            return next(csv.reader([text]))
        case "ndjson":
            try:
                return list(msgspec.json.decode(first, type=dict[str, msgspec.Raw]))
            except msgspec.DecodeError:
                return []


def _look_into(path: Path) -> tuple[list[bytes], int]:
    """The first lines that are not blank, and how many there are in all."""
    head: list[bytes] = []
    count = 0
    with open_lines(str(path)) as lines:
        while (block := lines.read_block()) is not None:
            found = [line.raw for line in block if line.raw is None or line.raw.strip()]
            count += len(found)
            head += [raw for raw in found if raw is not None][: 3 - len(head)] if len(head) < 3 else []
    return head, count


def _check(path: Path, form: Format, fields: Fields, head: list[bytes]) -> None:
    """Reads the first lines, so that a wrong guess is told before anything is started."""
    parser = parser_for(form, fields)
    try:
        rows = [row for raw in head if (row := parser.feed(raw)) is not None]
        parser.finish()
    except LineUnreadable as error:
        raise InvalidInput(
            f"{path} cannot be read as {form}, {error.detail}: give --format, --key, --time"
        ) from None
    if not rows:
        raise InvalidInput(f"{path} holds no lines but a header")


def _first(wanted: Iterable[str], names: list[str]) -> str | None:
    return next((name for name in wanted if name in names), None)
