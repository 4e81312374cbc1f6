"""Reports what a member does, as events of its group: each with its time, group and member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.model.events import Event, Kind


class MemberEvents:
    """Fills in the fields that all events of a member share; `emit` never blocks and never raises."""

    def __init__(
        self, emit: Callable[[Event], None], group: str, member: str, wall_ms: Callable[[], int]
    ) -> None:
        self._emit = emit
        self._group, self._member, self._wall_ms = group, member, wall_ms

    def __repr__(self) -> str:
        return f"<MemberEvents {self._member} of {self._group}>"

    def emit(self, kind: Kind, **fields: Any) -> None:
        """Reports an event of this member; `fields` are those of Event."""
        common: dict[str, Any] = {
            "at": self._wall_ms(),
            "group": self._group,
            "kind": kind,
            "member": self._member,
        }
        self._emit(Event(**(common | fields)))
