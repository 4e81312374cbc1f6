"""The ledger of imports: which logs were sent to which Baton, so that none is sent twice by mistake.

Lines of JSON in one file, only ever appended: `begun`, `sent`, `closed`. It is in the user's state folder and
not in the home of a stack, because the stack may be on another machine, in containers, or started from
another folder. A Baton is recognized by its Kafka cluster and namespace: an address may lead to another one
tomorrow. Logs are recognized by their content, so a log that was renamed, moved or gzipped is the same log.
`books/plan.py` decides what follows from the ledger.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cli.importing.parsing.rows import Fields
from cli.importing.reading.content import Content
from cli.importing.tally import Tally
from shared.errors import BatonError

FILE = "imports.jsonl"


class Reading(Fields, frozen=True, kw_only=True):
    """How a log's lines become fragments: with another reading, the same lines are other fragments."""

    form: str

    def difference(self, other: Reading) -> str:
        """The first field in which the other reading differs."""
        name = next(name for name in self.__struct_fields__ if getattr(self, name) != getattr(other, name))
        return f"with the {name} {getattr(self, name)!r}, not {getattr(other, name)!r}"


class Begun(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="begun"):
    """An import has begun to send; `target` is the producer's address, `table` the stream table's version.

    `cluster` names the Kafka cluster and the namespace behind that address, and `origin` is part of the
    fragments' ids; both are empty in the entries of earlier versions, and the first if the producer does not
    know.
    """

    id: str
    at: str
    target: str
    file: str
    name: str
    content: Content
    reading: Reading
    table: int
    cluster: str = ""
    origin: str = ""


class Sent(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="sent"):
    """Every line was settled; `lines` is the number of those that end with a line end."""

    id: str
    at: str
    content: Content
    lines: int
    tally: Tally


class Closed(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="closed"):
    """The marker was sent; `markers` has its offset in each stream (an earlier version did not note them)."""

    id: str
    at: str
    markers: dict[int, int] = {}


Entry = Begun | Sent | Closed


@dataclass(slots=True)
class PastImport:
    """What the ledger says about one import."""

    begun: Begun
    sent: Sent | None = None
    closed: Closed | None = None

    @property
    def content(self) -> Content:
        """The content that was sent, or is to be sent."""
        return self.begun.content if self.sent is None else self.sent.content


class Ledger:
    """The ledger in a folder, which it creates. Raises BatonError if it cannot."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            (folder / "imports").mkdir(parents=True, exist_ok=True)
            (folder / FILE).touch(mode=0o600)
        except OSError as error:
            raise BatonError(
                f"the ledger of imports cannot be kept in {folder}: {error.strerror}; set BATON_STATE to"
                " another folder"
            ) from None

    def journal_of(self, identifier: str) -> Path:
        """The journal of an import that is not complete."""
        return self._folder / "imports" / f"{identifier}.jsonl"

    def rejected_of(self, identifier: str) -> Path:
        """The lines of an import that were not accepted, unless a file was given."""
        return self._folder / "imports" / f"{identifier}.rejected"

    def past(self, target: str, cluster: str = "") -> list[PastImport]:
        """The imports into this cluster, or by entries that name none into this target, as they began."""
        found: dict[str, PastImport] = {}
        for entry in _entries((self._folder / FILE).read_bytes().splitlines()):
            match entry:
                case Begun():
                    found[entry.id] = PastImport(entry)
                case Sent():
                    found[entry.id].sent = entry
                case Closed():
                    found[entry.id].closed = entry
        return [past for past in found.values() if _is_same_baton(past.begun, target, cluster)]

    def append(self, entry: Entry) -> None:
        """Adds an entry, and forces it to the disk."""
        with (self._folder / FILE).open("ab+") as file:
            # a line that was cut, because the disk was full, must not take this one along
            file.seek(max(0, file.tell() - 1))
            separator = b"" if file.read(1) in (b"", b"\n") else b"\n"
            file.write(separator + msgspec.json.encode(entry) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def state_folder(environment: Mapping[str, str]) -> Path:
    """The user's folder for state: BATON_STATE, else `baton` in XDG_STATE_HOME or `~/.local/state`."""
    if given := environment.get("BATON_STATE"):
        return Path(given).absolute()
    base = environment.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "baton"


def _is_same_baton(begun: Begun, target: str, cluster: str) -> bool:
    if begun.cluster and cluster:
        return begun.cluster == cluster
    return begun.target == target


def _entries(lines: Iterable[bytes]) -> Iterable[Entry]:
    begun: set[str] = set()
    for line in lines:
        try:
            entry = msgspec.json.decode(line, type=Begun | Sent | Closed)
        # cut when the disk was full, or written by a later version: it cannot be acted upon
        except msgspec.DecodeError:
            continue
        if isinstance(entry, Begun):
            begun.add(entry.id)
        elif entry.id not in begun:
            continue
        yield entry
