"""The recent owners of each stream, and how it got to each: derived from the events of claims and handovers.

Pure. The last owners of a stream are kept however many events follow, so this reaches further back than the
list of events. `GET /streams` and `GET /streams/{n}` show it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from shared.model.events import Event

OWNERS_KEPT = 10
MAX_STREAMS = 4096
"""The number of slots, so no stream has a higher number: an event that names one is bogus."""


class HandoverRow(msgspec.Struct, frozen=True, kw_only=True):
    """One handover; null is what its event did not report."""

    at: Annotated[int, Meta(description="ms UTC, by the clock of the reporting member")]
    epoch: Annotated[int | None, Meta(description="epoch of the claim that followed")]
    from_: str = msgspec.field(name="from")
    to: str
    why: str
    sessions: Annotated[int | None, Meta(description="open sessions that moved")]
    bytes: Annotated[int | None, Meta(description="size of their fragments")]
    copy_ms: Annotated[float | None, Meta(description="duration of the first copy, while the donor ran on")]
    pause_ms: Annotated[
        float | None, Meta(description="from the donor's last record to the recipient's first")
    ]
    warm: Annotated[
        bool | None, Meta(description="whether the owner continued from memory instead of a replay")
    ]


class OwnerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One owner that a stream has or had."""

    owner: str
    epoch: int
    since: Annotated[int, Meta(description="time of its claim, ms UTC")]
    why: str
    warm: Annotated[bool | None, Meta(description="whether it continued from memory, without a replay")]
    pause_ms: float | None


class OwnershipHistory:
    """By group and stream: the last owners, newest first, at most 10; and the last handover."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, int], list[OwnerRow]] = {}
        self._handovers: dict[tuple[str, int], HandoverRow] = {}

    def __repr__(self) -> str:
        return f"<OwnershipHistory of {len(self._owners)} streams>"

    def owners(self, group: str, stream: int) -> list[OwnerRow]:
        """The stream's last owners that events have reported."""
        return self._owners.get((group, stream), [])

    def handover(self, group: str, stream: int) -> HandoverRow | None:
        """The stream's last handover, None without one."""
        return self._handovers.get((group, stream))

    def forget(self) -> None:
        """Drops everything: the topic was recreated."""
        self._owners.clear()
        self._handovers.clear()

    def add(self, event: Event) -> None:
        """Keeps what the event says about its stream."""
        if event.stream is None or not 0 <= event.stream < MAX_STREAMS:
            return
        key = (event.group, event.stream)
        owner = event.member
        if event.kind == "handover":
            self._handovers[key] = _handover_row(event)
            owner = event.target or event.member
        if event.kind in ("claim", "handover", "takeover") and owner and event.epoch is not None:
            self._owners[key] = _with_owner(self._owners.get(key, []), owner, event.epoch, event)


def _with_owner(owners: list[OwnerRow], owner: str, epoch: int, event: Event) -> list[OwnerRow]:
    """The owners, updated by the event: a claim, or what it was part of (a handover or a takeover).

    Both events of one change describe the same owner, and may arrive in any order. So they are
    merged by (owner, epoch) and sorted by the members' clocks.
    """
    # the second event to arrive completes the row
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
