"""Who owned each stream lately, and how it came to its owner: what events say of streams.

Pure. Every claim and every handover is remembered as it is told, so that this reaches further back than
the newest events; `GET /streams` and `GET /streams/{n}` show it.
"""

from __future__ import annotations

import msgspec

from shared.model.events import Event

OWNERS_KEPT = 10
MAX_STREAMS = 4096
"""As many as there are slots; a higher number is nobody's."""


class HandoverRow(msgspec.Struct, frozen=True, kw_only=True):
    """One handover as its event tells of it: the fields of `Event`, None for what was not told."""

    at: int
    epoch: int | None
    from_: str = msgspec.field(name="from")
    to: str
    why: str
    sessions: int | None
    bytes: int | None
    copy_ms: float | None
    pause_ms: float | None
    warm: bool | None


class OwnerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One owner that a stream has or had, since its claim; `warm`: it went on from memory."""

    owner: str
    epoch: int
    since: int
    why: str
    warm: bool | None
    pause_ms: float | None


class OwnershipHistory:
    """By group and stream: the last owners, newest first, at most 10; and the last handover."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, int], list[OwnerRow]] = {}
        self._handovers: dict[tuple[str, int], HandoverRow] = {}

    def __repr__(self) -> str:
        return f"<OwnershipHistory of {len(self._owners)} streams>"

    def owners(self, group: str, stream: int) -> list[OwnerRow]:
        """The stream's last owners, as far as they have been told."""
        return self._owners.get((group, stream), [])

    def handover(self, group: str, stream: int) -> HandoverRow | None:
        """The stream's last handover, None without one."""
        return self._handovers.get((group, stream))

    def forget(self) -> None:
        """Nothing has been told."""
        self._owners.clear()
        self._handovers.clear()

    def remember(self, event: Event) -> None:
        """Takes in what the event says of its stream."""
        if event.stream is None or not 0 <= event.stream < MAX_STREAMS:
            return
        key = (event.group, event.stream)
        owner = event.member
        if event.kind == "handover":
            self._handovers[key] = _handover_row(event)
            owner = event.target or event.member
        if event.kind in ("claim", "handover") and owner and event.epoch is not None:
            self._owners[key] = _with_owner(self._owners.get(key, []), owner, event.epoch, event)


def _with_owner(owners: list[OwnerRow], owner: str, epoch: int, event: Event) -> list[OwnerRow]:
    """The owners with what the event says of one: its claim, or the handover that the claim came from.

    Members tell independently of each other, so what they tell is put in order by their clocks.
    """
    known = next((row for row in owners if (row.owner, row.epoch) == (owner, epoch)), None)
    row = OwnerRow(
        owner=owner,
        epoch=epoch,
        since=min(known.since, event.at) if known else event.at,
        why=event.why or (known.why if known else ""),
        warm=event.warm if event.warm is not None else known.warm if known else None,
        pause_ms=event.pause_ms if event.pause_ms is not None else known.pause_ms if known else None,
    )
    others = [other for other in owners if other is not known]
    return sorted([row, *others], key=lambda row: row.since, reverse=True)[:OWNERS_KEPT]


def _handover_row(event: Event) -> HandoverRow:
    return HandoverRow(
        at=event.at,
        epoch=event.epoch,
        from_=event.source,
        to=event.target or event.member,
        why=event.why,
        sessions=event.sessions,
        bytes=event.bytes,
        copy_ms=event.copy_ms,
        pause_ms=event.pause_ms,
        warm=event.warm,
    )
