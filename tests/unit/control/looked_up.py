"""In-memory twins of what control asks for look-ups: the owners of streams, and their logs."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.control.core.found import RecordPage, record_row
from shared.errors import KafkaDenied, PeerUnavailable
from shared.model.open_sessions import SHOWN, HeldKey, HeldStream, OpenSessionRow, Unreadable

NOON = 1_700_049_600_000
"""2023-11-15, 12:00 UTC, in ms."""


def open_session(key: str, offset: int = 7, **fields: int) -> OpenSessionRow:
    """A session of two fragments, which began at noon and is open for a minute."""
    known = {"first_time": NOON, "last_time": NOON + 60_000, "opened_at": NOON, "last_at": NOON + 60_000}
    known |= {"silent_after": NOON + 2_160_000, "idle_after": NOON + 2_160_000, "fragments": 2, "bytes": 60}
    return OpenSessionRow(
        key=key, first_offset=offset, last_offset=offset + 1, parked=False, **(known | fields)
    )


@dataclass
class InMemoryOwners:
    """An `OwnerSource`: what each member holds, by its id and key. Others do not answer."""

    held: dict[str, dict[str, OpenSessionRow]] = field(default_factory=dict)
    asked: list[tuple[str, str, int]] = field(default_factory=list)

    async def key(self, group: str, member: str, address: str, stream: int, key: str) -> HeldKey:
        session = self._of(member, address, stream).get(key)
        data = [f'{{"key": "{key}", "time": {NOON + n * 60_000}}}' for n in range(2)] if session else []
        return HeldKey(stream=stream, epoch=3, position=9, w=NOON, a=NOON, open=session, data=data)

    async def stream(self, group: str, member: str, address: str, stream: int) -> HeldStream:
        rows = self._of(member, address, stream).values()
        return HeldStream(
            stream=stream,
            epoch=3,
            position=9,
            w=NOON,
            a=NOON,
            open_sessions=len(rows),
            oldest=sorted(rows, key=lambda row: row.first_offset)[:SHOWN],
            heaviest=sorted(rows, key=lambda row: -row.bytes)[:SHOWN],
            last_unreadable=Unreadable(offset=5, why="neither a marker nor a tick"),
        )

    def _of(self, member: str, address: str, stream: int) -> dict[str, OpenSessionRow]:
        self.asked.append((member, address, stream))
        if member not in self.held:
            raise PeerUnavailable(f"{member} does not answer", cause="refused")
        return self.held[member]


@dataclass
class InMemoryRecords:
    """A `RecordSource`: the records (key and value) of each stream, at their offsets, one a second."""

    logs: dict[int, list[tuple[bytes | None, bytes]]] = field(default_factory=dict)
    is_denied: bool = False

    async def newest(self, stream: int, limit: int, before: int | None) -> RecordPage:
        if self.is_denied:
            raise KafkaDenied("a right is missing")
        log = self.logs.get(stream, [])
        until = len(log) if before is None else min(before, len(log))
        since = max(0, until - limit)
        return RecordPage(
            stream=stream,
            topic=f"fragments.{stream:04}",
            first=0,
            end=len(log),
            fragments=[record_row(n, NOON + n * 1000, *log[n]) for n in reversed(range(since, until))],
            next=since if 0 < since < until else None,
        )
