"""Rewinding a group: where another group starts that follows it, when that is refused, and what it costs.

Pure. A group never goes back (`shared/model/start.py`), so a rewind makes another group. Its start in a
stream is what the operator asks for, but at most where everything before is delivered, and at least where the
log still begins. `live/acts/groups.py` reads the facts and makes the group.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from shared.errors import Conflict, InvalidInput
from shared.model.fragments import FragmentRejected, parse_rfc3339
from shared.model.group import GroupSettings, faults_of
from shared.model.head import Head
from shared.model.names import is_group_name
from shared.model.start import GroupStart, latest_start

MAX_TIME_MS = 2**63 - 1
LogState = Literal["same", "anew", "cut"]
"""What became of a log since its head: it holds what was committed; it is another log; it lost its end."""
To = str | int | dict[str, int]
Wanted = Literal["earliest", "latest"]


class RewindRefused(Conflict):
    """A group that follows would miss fragments, or have some twice."""


class RewindWish(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator asks for: `as_` is the new group, `to` where it starts."""

    group: str
    as_: Annotated[str, Meta(description="the new group")] = msgspec.field(name="as")
    to: To = "earliest"
    streams: list[int] | None = None
    settings: dict[str, Any] = {}
    alone: bool = False


class StreamStart(msgspec.Struct, frozen=True, kw_only=True):
    """Where the new group starts in one stream."""

    stream: int
    start: Annotated[int | None, Meta(description="null: the log was made anew, and is read from its start")]
    why: Annotated[str, Meta(description="why it is not what was asked for; empty if it is")]
    records: Annotated[int, Meta(description="to read, up to the log's present end")]
    taken: Annotated[int, Meta(description="records that were asked for, and that retention has removed")]


class RewindForecast(msgspec.Struct, frozen=True, kw_only=True):
    """What a rewind would make."""

    kind: Literal["rewind"]
    group: str
    as_: Annotated[str, Meta(description="the new group")] = msgspec.field(name="as")
    follows: Annotated[str | None, Meta(description="null: nobody")]
    settings: GroupSettings
    streams: list[StreamStart]
    records: Annotated[int, Meta(description="to read, of all streams")]
    plan: Annotated[str, Meta(description="digest of the starts; as `if_plan` it allows only these")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts:
    """A stream's log, and the followed group's head on it.

    `first`, `end`: the log's half-open offsets; `at`: the offset of the time that was asked for, if one was;
    `number`: the log's, in the followed group, if it has no head; `before`: where that group starts itself,
    in its first log; `unreadable`: why the head cannot be read.
    """

    first: int
    end: int
    at: int | None = None
    head: Head | None = None
    number: int = 0
    before: int | None = None
    unreadable: str = ""
    log: LogState = "same"

    @property
    def log_number(self) -> int:
        """The number that the log has in the followed group."""
        return self.head.log if self.head is not None else self.number


def check_wish(wish: RewindWish, count: int) -> None:
    """Raises InvalidInput if the wish cannot be meant for any group of `count` streams."""
    if not is_group_name(wish.as_) or wish.as_ == wish.group:
        raise InvalidInput("`as`: another name, of lower-case letters, digits, `_` and `-`, at most 61")
    named = [*(wish.streams or ()), *(parse_offsets(wish.to) if isinstance(wish.to, dict) else ())]
    if unknown := [stream for stream in named if not 0 <= stream < count]:
        raise InvalidInput(f"there is no stream {unknown[0]}; there are 0 … {count - 1}")


def time_of_wish(to: To) -> int | None:
    """The time (ms) that `to` names; None for offsets, `earliest` and `latest`. Raises InvalidInput.

    >>> time_of_wish("1970-01-01T00:00:01Z"), time_of_wish(5), time_of_wish("latest")
    (1000, 5, None)
    """
    if isinstance(to, dict) or to in ("earliest", "latest"):
        return None
    if isinstance(to, int):
        # below 0 stand Kafka's words for other things: -1 is the end
        if not 0 <= to <= MAX_TIME_MS:
            raise InvalidInput("`to`: a time in ms is at least 0, and less than 2 to the 63")
        return to
    try:
        return parse_rfc3339(to)
    except FragmentRejected:
        raise InvalidInput(
            "`to`: earliest, latest, a time like 2026-11-23T12:00:00Z, or offsets by stream"
        ) from None


def parse_offsets(to: Mapping[str, int]) -> dict[int, int]:
    """Offsets by stream. Raises InvalidInput if one of the keys is no stream or an offset is negative."""
    try:
        found = {int(stream): offset for stream, offset in to.items()}
    except ValueError:
        raise InvalidInput("`to`: the keys are numbers of streams") from None
    if any(offset < 0 for offset in found.values()):
        raise InvalidInput("`to`: an offset is at least 0")
    return found


def new_settings(settings: GroupSettings, changes: Mapping[str, Any]) -> GroupSettings:
    """The settings with these changes. Raises InvalidInput.

    If `idle_ms` is the sum of gap and lateness and is not changed itself, it stays the sum.
    """
    if unknown := changes.keys() - set(GroupSettings.__struct_fields__):
        raise InvalidInput(f"`settings`: there is no {min(unknown)!r}")
    merged = msgspec.structs.asdict(settings) | dict(changes)
    try:
        found = msgspec.convert(merged, GroupSettings)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"`settings`: {error}") from None
    if settings.idle_ms == settings.gap_ms + settings.lateness_ms and "idle_ms" not in changes:
        found = msgspec.structs.replace(found, idle_ms=found.gap_ms + found.lateness_ms)
    if faults := faults_of(found):
        raise InvalidInput(f"`settings`: {', '.join(faults)}")
    return found


def start_of(stream: int, wish: RewindWish, facts: StreamFacts) -> StreamStart:
    """Where the new group starts in a stream. Raises RewindRefused."""
    wanted = _wanted(stream, wish, facts)
    if wish.alone:
        return _started(stream, wanted, facts, facts.end, "the log ends there")
    if facts.unreadable:
        raise RewindRefused(f"stream {stream}: {facts.unreadable}; only a group that is `alone` can start")
    if facts.log == "anew":
        records = facts.end - facts.first
        why = "its log was made anew"
        return StreamStart(stream=stream, start=None, why=why, records=records, taken=0)
    if facts.log == "cut":
        # sessions that reach beyond its end would cover what is appended there now
        raise RewindRefused(f"stream {stream}: its log lost its end; only a group that is `alone` can start")
    # a group that was told to start over reads the log from its beginning
    before = facts.before if not facts.log_number else None
    try:
        most = latest_start(facts.head, before)
    except InvalidInput as error:
        raise RewindRefused(f"stream {stream}: {error.detail}") from None
    if facts.head is None or facts.head.oldest == -1:
        most = max(most, facts.first)  # nothing is open, and what is gone nobody will read
    if most > facts.end:
        raise RewindRefused(
            f"stream {stream}: {wish.group!r} starts at {most} and has read nothing, but the log ends at "
            f"{facts.end}; rewind the group that it follows, or start `alone`"
        )
    if most < facts.first:
        raise RewindRefused(
            f"stream {stream}: retention has removed records from {most} to {facts.first} that sessions of "
            f"{wish.group!r} need which are still open; wait until they close, or start `alone`"
        )
    is_open = facts.head is not None and facts.head.oldest == most
    why = f"the session that began at {most} is open" if is_open else f"{wish.group} has read so far"
    return _started(stream, wanted, facts, most, why)


def plan_of(wish: RewindWish, settings: GroupSettings, starts: Sequence[StreamStart]) -> RewindForecast:
    """The forecast of these starts. Its digest leaves out how much there is to read, which grows."""
    rows = [wish, settings, [(one.stream, one.start) for one in starts]]
    return RewindForecast(
        kind="rewind",
        group=wish.group,
        as_=wish.as_,
        follows=None if wish.alone else wish.group,
        settings=settings,
        streams=list(starts),
        records=sum(one.records for one in starts),
        plan=hashlib.sha256(msgspec.json.encode(rows)).hexdigest()[:12],
    )


def group_start(found: RewindForecast, logs: Mapping[int, int], appended: Mapping[int, int]) -> GroupStart:
    """The start to store; `logs`: numbers of the followed group's logs; `appended`: append times (ms) of the
    records before the starts.
    """
    return GroupStart(
        follows=found.follows,
        offsets={one.stream: one.start for one in found.streams},
        logs={stream: log for stream, log in logs.items() if log and found.follows is not None},
        appended=dict(appended),
    )


def log_state(head: Head | None, end: int, first_a: int | None, last_a: int | None) -> LogState:
    """What became of the log; `first_a`, `last_a`: append times (ms) of its first record, and of the record
    before the head's `known_end`, None if there is none.

    A log that was made anew holds only records that are younger than all that was committed.
    """
    if head is None or head.known_end == 0:
        return "same"
    if end >= head.known_end and (last_a is None or head.known_appended in (-1, last_a)):
        return "same"
    return "anew" if first_a is None or first_a > head.known_appended >= 0 else "cut"


def _wanted(stream: int, wish: RewindWish, facts: StreamFacts) -> int | Wanted:
    if wish.streams is not None and stream not in wish.streams:
        return "latest"
    if isinstance(wish.to, dict):
        return parse_offsets(wish.to).get(stream, "latest")
    if time_of_wish(wish.to) is not None:
        return facts.end if facts.at is None else facts.at
    return "latest" if wish.to == "latest" else "earliest"


def _started(stream: int, wanted: int | Wanted, facts: StreamFacts, most: int, why_lower: str) -> StreamStart:
    asked = wanted if isinstance(wanted, int) else most if wanted == "latest" else 0
    start = max(min(asked, most), facts.first)
    taken = max(0, start - asked)
    why = f"retention has removed {taken} records" if taken else ""
    return StreamStart(
        stream=stream,
        start=start,
        why=why_lower if start < asked else why,
        records=max(0, facts.end - start),
        taken=taken,
    )
