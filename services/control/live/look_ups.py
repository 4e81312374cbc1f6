"""Looks up keys, sessions and records: asks the owner of a stream, Kafka and the lake, each at most once.

An open session is in the memory of its stream's owner, a finished one in the lake, a record in Kafka. If one
of them does not answer, the rest is still returned, with a sentence that says what is missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import date
from typing import TypeVar

from services.control.core.found import (
    COUNTED,
    Finished,
    KeyRow,
    OpenRow,
    RecordPage,
    SessionRow,
    StreamKeys,
    parse_place,
    recent_keys,
)
from services.control.core.lake.freshness import FreshnessRow
from services.control.core.report.rows import MemberRow, StreamDetail
from services.control.live.view.cluster_view import ClusterView
from services.control.ports import OwnerSource, RecordSource, SessionSource
from shared.errors import InvalidInput, NotFound, PeerUnavailable, Unavailable
from shared.model.names import DEFAULT_GROUP
from shared.model.routing import parse_table, slot_for
from shared.together import both

NO_TABLE = "the lake has no table of sessions yet; `baton run lake` makes it"

T = TypeVar("T")


class UnknownSession(NotFound):
    """The lake has no session of that id."""


class NoStreams(Unavailable):
    """There is no stream table yet; the first producer creates it."""


class LookUp:
    """Answers look-ups by what `view` knows of the streams; `freshness` says what the lake lacks."""

    def __init__(
        self,
        view: ClusterView,
        owners: OwnerSource,
        records: RecordSource,
        lake: SessionSource,
        freshness: Callable[[], Sequence[FreshnessRow]],
    ) -> None:
        self._view = view
        self._owners = owners
        self._records = records
        self._lake = lake
        self._freshness = freshness

    def __repr__(self) -> str:
        return f"<LookUp by {self._view!r}>"

    async def key(
        self, group: str, key: str, *, limit: int, after: str = "", with_data: bool = False
    ) -> KeyRow:
        """The key, in a group or the one that an alias names.

        Raises UnknownGroup, InvalidInput (a wrong `after`), Unavailable.
        """
        group = self._view.named(group)
        slot, row = slot_for(key.encode()), self._stream_of(group, key)
        (held, why), finished = await both(
            self._asked(
                row, lambda member, address: self._owners.key(group, member, address, row.stream, key)
            ),
            self._finished({"group": group, "key": key}, limit, after, with_data=with_data),
        )
        return KeyRow(
            group=group,
            key=key,
            slot=slot,
            stream=row.stream,
            owner=row.owner,
            state=row.state,
            answered=held is not None,
            why=why,
            open=held.open if held is not None else None,
            data=held.data if held is not None and held.open is not None else None,
            finished=finished,
        )

    async def day(self, group: str, day: str, *, limit: int, after: str = "") -> Finished:
        """The group's finished sessions of a day. Raises UnknownGroup, InvalidInput, Unavailable."""
        try:
            date.fromisoformat(day)
        except ValueError:
            raise InvalidInput(f"there is no day {day}") from None
        group = self._view.named(group)
        self._view.check_group(group)
        return await self._finished({"group": group, "day": day}, limit, after)

    async def session(self, session_id: str) -> SessionRow:
        """The finished session, with its fragments. Raises UnknownSession, Unavailable."""
        try:
            found, _ = await self._lake.newest({"id": session_id}, limit=1, with_data=True)
        except NotFound:
            raise UnknownSession(NO_TABLE) from None
        if not found:
            raise UnknownSession(
                f"the lake has no session {session_id}: it may be open, or not added yet (`baton run lake`)"
            )
        return found[0]

    async def open(self, group: str, stream: int) -> OpenRow:
        """What is open in the stream. Raises UnknownGroup, UnknownStream, Unavailable."""
        row = self._view.stream(group, stream)
        held, why = await self._asked(
            row, lambda member, address: self._owners.stream(group, member, address, stream)
        )
        return OpenRow(
            stream=stream,
            owner=row.owner,
            answered=held is not None,
            why=why,
            open_sessions=held.open_sessions if held else None,
            oldest=held.oldest if held else None,
            heaviest=held.heaviest if held else None,
            last_unreadable=held.last_unreadable if held else None,
        )

    async def fragments(self, stream: int, limit: int, before: int | None = None) -> RecordPage:
        """The newest records of the stream, below offset `before`. Raises UnknownStream, Unavailable."""
        self._view.stream(DEFAULT_GROUP, stream)
        return await self._records.newest(stream, limit, before)

    async def keys(self, group: str, stream: int) -> StreamKeys:
        """The keys that weigh most. Raises UnknownGroup, UnknownStream, Unavailable."""
        held = await self.open(group, stream)
        newest, recent_why = None, ""
        try:
            newest = (await self._records.newest(stream, COUNTED, None)).fragments
        except Unavailable as error:
            recent_why = error.reason
        return StreamKeys(
            stream=stream,
            owner=held.owner,
            answered=held.answered,
            why=held.why,
            heaviest=held.heaviest,
            recent=recent_keys(newest) if newest is not None else None,
            recent_why=recent_why,
            records=len(newest or ()),
            since=newest[-1].appended_at if newest else None,
        )

    def _stream_of(self, group: str, key: str) -> StreamDetail:
        if not (text := self._view.stream_table()):
            raise NoStreams("there is no stream table yet; the first producer creates it")
        return self._view.stream(group, parse_table(text.encode()).stream_for(key.encode()))

    async def _asked(
        self, row: StreamDetail, ask: Callable[[str, str], Awaitable[T]]
    ) -> tuple[T | None, str]:
        """What the owner answers, or why there is no answer."""
        if row.owner is None or row.address is None:
            return None, f"nobody owns stream {row.stream}; its fragments are kept and wait"
        members = self._view.served().report.members
        member = next((one for one in members if (one.id, one.group) == (row.owner, row.group)), None)
        if member is not None and not member.answers:
            return None, silence_of(member)
        try:
            return await ask(row.owner, row.address), ""
        except PeerUnavailable as error:
            return None, error.reason

    async def _finished(
        self, sought: Mapping[str, str], limit: int, after: str, *, with_data: bool = False
    ) -> Finished:
        group, place = sought["group"], parse_place(after)
        behind = next((row.behind_records for row in self._freshness() if row.group == group), None)
        sessions, following, why = None, None, ""
        try:
            sessions, following = await self._lake.newest(
                sought, limit=limit, after=place, with_data=with_data
            )
        except NotFound:
            why = NO_TABLE
        except Unavailable as error:
            why = error.reason
        return Finished(
            sessions=sessions,
            next=str(following) if following is not None else None,
            behind_records=behind,
            why=why,
        )


def silence_of(member: MemberRow) -> str:
    """What it means that the member does not answer."""
    if member.lease_ms is None:
        return f"{member.id} does not answer"
    return (
        f"{member.id} does not answer; its lease had {max(0, round(member.lease_ms / 1000))} s left when it "
        "last did, and after its end others take its streams over"
    )
