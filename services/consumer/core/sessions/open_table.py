"""The open sessions of a stream by their keys, in order of their last fragments.

Checkpoints and the copies of a handover hold the same tables.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from services.consumer.core.large_dict import discard
from services.consumer.core.sessions.state import OpenSession


class OpenTable(OrderedDict[str, OpenSession]):
    """Key → session, in order of last fragments: each session's `last_offset` is above those before it.

    Only a replay disturbs the order, and restores it by its end (`assembly.py`).
    """

    __slots__ = ()

    def __init__(self, sessions: Iterable[OpenSession] = ()) -> None:
        super().__init__()
        for session in sessions:
            self.add(session)

    def __repr__(self) -> str:
        return f"<OpenTable of {len(self)} sessions>"

    def __del__(self) -> None:
        discard(self)

    def add(self, session: OpenSession) -> None:
        """Adds the session at the end, for a key that has none."""
        self[session.key] = session

    def oldest(self) -> OpenSession | None:
        """The first session."""
        return next(iter(self.values()), None)

    def unordered(self) -> Iterable[OpenSession]:
        """The sessions in an order that is the same in every process, though not that of last fragments.

        An OrderedDict lists its own order 10 times as slowly.
        """
        return dict.values(self)

    def unordered_keys(self) -> Iterable[str]:
        """The keys, in the order of `unordered` and as fast."""
        return dict.keys(self)
