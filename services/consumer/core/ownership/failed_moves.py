"""Which running streams could not be handed over lately: whose turn is next, and which must be replayed.

Pure. A stream may never fit into a bundle, or its recipient may always refuse it, and each try encodes all of
it. So after a few failures, or at once where every other try would fail too, it moves by a release and a
replay. Until then streams take turns, so that no other waits behind one that cannot move. `dampers.py` keeps
this, `decide.py` reads it.
"""

from __future__ import annotations

from collections.abc import Collection

TRIES = 3
"""A view that is behind may refuse once or twice; a replay costs more than two more tries."""
REMEMBERED_MS = 60_000
"""Twice the pause after a recipient's silence, so that failures in a row add up. Later the stream may fit."""


class FailedMoves:
    """By stream: how many handovers have failed in a row, and when the last one did."""

    def __init__(self) -> None:
        self._failed: dict[int, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"<FailedMoves {self._failed}>"

    def note(self, stream: int, now_ms: int, *, is_lasting: bool = False) -> None:
        """One more handover of the stream has failed; if `is_lasting`, all others would."""
        times, _ = self._failed.get(stream, (0, 0))
        self._failed[stream] = TRIES if is_lasting else times + 1, now_ms

    def forget(self, owned: Collection[int], now_ms: int) -> None:
        """Drops what is old, and streams that this member no longer owns."""
        self._failed = {
            stream: (times, at_ms)
            for stream, (times, at_ms) in self._failed.items()
            if stream in owned and at_ms > now_ms - REMEMBERED_MS
        }

    def must_replay(self, stream: int) -> bool:
        """Whether to release the stream instead of offering it once more."""
        return self._failed.get(stream, (0, 0))[0] >= TRIES

    def turn(self, stream: int) -> tuple[int, int]:
        """Sorts streams: first those that have not failed, then by how long ago they did."""
        return self._failed.get(stream, (0, -1))[1], stream
