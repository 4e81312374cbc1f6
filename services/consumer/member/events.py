"""Tells the group's history what a member does: each event with its time, group and member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.model.events import Event, Kind


class MemberEvents:
    """Fills in what is the same in all events of a member; `tell` never blocks and never raises."""

    def __init__(
        self, tell: Callable[[Event], None], group: str, member: str, wall_ms: Callable[[], int]
    ) -> None:
        self._tell = tell
        self._group, self._member, self._wall_ms = group, member, wall_ms

    def __repr__(self) -> str:
        return f"<MemberEvents {self._member} of {self._group}>"

    def emit(self, kind: Kind, **fields: Any) -> None:
        """Tells an event of this member; `fields` are those of Event."""
        common: dict[str, Any] = {
            "at": self._wall_ms(),
            "group": self._group,
            "kind": kind,
            "member": self._member,
        }
        self._tell(Event(**(common | fields)))
