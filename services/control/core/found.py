"""What look-ups answer: a key and its sessions, a finished session, records of a log, the keys of a stream.

Pure: the rows, and what a record of a fragments topic is. `services/control/live/look_ups.py` asks the owner,
Kafka and the lake, and joins their answers. What is missing is null, and a sentence beside it says why.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from services.control.core.report.observed import StreamState
from shared.errors import InvalidInput
from shared.model.fragments import FragmentRejected, parse_fragment, parse_marker, time_of
from shared.model.open_sessions import SHOWN, OpenSessionRow, Unreadable
from shared.model.sessions import Reason

MOST_VALUE_CHARS = 4096
"""How much of a record's value is shown."""
COUNTED = 500
"""Records of a stream, the newest ones, among which its keys are counted."""
HOT = 0.5
"""A key is hot with at least this part of a stream's newest records."""
LEAST_JUDGED = 100
"""Records: fewer say nothing about a key."""
_PLACE = re.compile(r"(-?[0-9]{1,19})\.([0-9a-f]{32})")
Kind = Literal["fragment", "marker", "tick", "unreadable"]
Why = Annotated[str, Meta(description="why something is null, and what to do; empty if nothing is")]


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A finished session in the lake."""

    id: str
    group: str
    key: str
    stream: int
    epoch: int
    first_offset: int
    last_offset: int
    first_time: Annotated[int, Meta(description="ms UTC")]
    last_time: Annotated[int, Meta(description="ms UTC")]
    opened_at: Annotated[int, Meta(description="when its first fragment was appended (ms UTC)")]
    closed_at: Annotated[int, Meta(description="ms UTC, by the broker's clock")]
    fragments: int
    bytes: int
    reason: Reason
    data: Annotated[list[str] | None, Meta(description="the fragments as posted; null: not asked for")] = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page of finished sessions ends: at its last row. Its text is the page's `next`."""

    first_time: int
    id: str

    def __str__(self) -> str:
        return f"{self.first_time}.{self.id}"


def parse_place(text: str) -> Place | None:
    """The place; None for "". Raises InvalidInput.

    >>> parse_place(str(Place(1_700_049_600_000, "5f0c7e2ab91d" + "0" * 20))).first_time
    1700049600000
    """
    if not text:
        return None
    found = _PLACE.fullmatch(text)
    if found is None:
        raise InvalidInput("`after` is not the `next` of a page of sessions")
    return Place(int(found[1]), found[2])


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """A page of finished sessions, newest first; null if the lake cannot say."""

    sessions: list[SessionRow] | None
    next: Annotated[str | None, Meta(description="the value of `after` for the next page; null: the last")]
    behind_records: Annotated[
        int | None, Meta(description="offsets of the group's topic that the lake lacks; null: not measured")
    ]
    why: Why


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key: where it belongs, its open session, and its finished ones."""

    group: str
    key: str
    slot: int
    stream: int
    owner: str | None
    state: StreamState
    answered: Annotated[bool, Meta(description="whether the owner answered; else `open` is not known")]
    why: Why
    open: OpenSessionRow | None
    data: Annotated[
        list[str] | None, Meta(description="the open session's newest fragments, as posted; at most 100")
    ]
    finished: Finished


class OpenRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is open in a stream, as its owner holds it."""

    stream: int
    owner: str | None
    answered: Annotated[bool, Meta(description="whether the owner answered; else the rest is not known")]
    why: Why
    open_sessions: int | None
    oldest: Annotated[list[OpenSessionRow] | None, Meta(description="by first offset, at most 10")]
    heaviest: Annotated[list[OpenSessionRow] | None, Meta(description="by bytes, at most 10")]
    last_unreadable: Annotated[
        Unreadable | None, Meta(description="the last record that this owner itself has set aside")
    ]


class RecordRow(msgspec.Struct, frozen=True, kw_only=True):
    """A record of a stream's log."""

    offset: int
    appended_at: Annotated[int, Meta(description="ms UTC, by the broker's clock")]
    kind: Kind
    key: str | None
    time: Annotated[int | None, Meta(description="its own event time (ms UTC); null: it has none")]
    id: str | None
    end: bool
    bytes: int
    value: Annotated[str, Meta(description="as posted, at most 4,096 characters")]
    why: Annotated[str, Meta(description="why it is unreadable")]


class RecordPage(msgspec.Struct, frozen=True, kw_only=True):
    """Records of a stream's log, newest first."""

    stream: int
    topic: str
    first: Annotated[int, Meta(description="first offset that is still in the log")]
    end: Annotated[int, Meta(description="offset of the next record that will be written")]
    fragments: list[RecordRow]
    next: Annotated[int | None, Meta(description="the value of `before` for older ones; null: the last page")]


class RecentKey(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the newest records a key has."""

    key: str
    fragments: int
    bytes: int


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key that has most of a stream's newest records: `share` of them, from `HOT` to 1."""

    key: str
    share: float


class StreamKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that weigh most in a stream: by their open sessions, and by the newest records."""

    stream: int
    owner: str | None
    answered: Annotated[bool, Meta(description="whether the owner answered; else `heaviest` is not known")]
    why: Why
    heaviest: Annotated[list[OpenSessionRow] | None, Meta(description="by bytes, at most 10")]
    recent: Annotated[
        list[RecentKey] | None,
        Meta(description="by fragments among the newest records, at most 10; null: the log cannot be read"),
    ]
    recent_why: Why
    records: Annotated[int, Meta(description="how many records were counted")]
    since: Annotated[int | None, Meta(description="when the oldest of them was appended (ms UTC)")]


def record_row(offset: int, appended_at: int, key: bytes | None, value: bytes | None) -> RecordRow:
    """The record as the fold reads it (services/consumer/core/sessions/fold.py)."""
    raw = value or b""
    kind, time, fragment_id, is_end, why = _read(key, raw)
    return RecordRow(
        offset=offset,
        appended_at=appended_at,
        kind=kind,
        key=None if key is None else key.decode(errors="backslashreplace"),
        time=time,
        id=fragment_id,
        end=is_end,
        bytes=len(raw),
        value=raw[: 4 * MOST_VALUE_CHARS].decode(errors="backslashreplace")[:MOST_VALUE_CHARS],
        why=why,
    )


def _read(key: bytes | None, raw: bytes) -> tuple[Kind, int | None, str | None, bool, str]:
    """Kind, event time, id, end, and why it is unreadable."""
    try:
        if key is None:
            marker = parse_marker(raw)
            return ("tick" if marker.time is None else "marker"), marker.time, None, False, ""
        fragment = parse_fragment(raw)
        time = time_of(fragment)
        if fragment.key.encode() != key:
            raise FragmentRejected("key", "the record's key is not the fragment's")
    except FragmentRejected as error:
        return "unreadable", None, None, False, error.detail
    fragment_id = None if fragment.id is msgspec.UNSET else fragment.id
    return "fragment", time, fragment_id, fragment.end, ""


def recent_keys(records: Iterable[RecordRow]) -> list[RecentKey]:
    """The keys with the most fragments among these records."""
    fragments, sizes = Counter[str](), Counter[str]()
    for record in records:
        if record.kind == "fragment" and record.key is not None:
            fragments[record.key] += 1
            sizes[record.key] += record.bytes
    return [
        RecentKey(key=key, fragments=number, bytes=sizes[key]) for key, number in fragments.most_common(SHOWN)
    ]


def hot_key(records: Sequence[RecordRow]) -> HotKey | None:
    """The key with at least half of these records; None if there is none, or the records are few."""
    recent = recent_keys(records)
    if len(records) < LEAST_JUDGED or not recent:
        return None
    share = recent[0].fragments / len(records)
    return HotKey(recent[0].key, share) if share >= HOT else None
