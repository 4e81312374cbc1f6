"""An operator's pause of the group: the members keep their streams, commit, and read nothing.

The member notes what its view shows (`member.py`); the workers of its streams ask (`fetching.py`).
"""

from __future__ import annotations

import asyncio


class GroupPause:
    """Whether the group is paused, as its member last saw it."""

    def __init__(self) -> None:
        self._resumed = asyncio.Event()
        self._resumed.set()

    def __repr__(self) -> str:
        return f"<GroupPause {'on' if self.is_on else 'off'}>"

    @property
    def is_on(self) -> bool:
        """Whether nothing may be read."""
        return not self._resumed.is_set()

    def note(self, *, is_on: bool) -> bool:
        """Notes what was seen; whether that has changed."""
        if is_on is self.is_on:
            return False
        if is_on:
            self._resumed.clear()
        else:
            self._resumed.set()
        return True

    async def sit_out(self, seconds: float, stopping: asyncio.Future[object]) -> None:
        """Waits for the end of the pause, but not beyond `seconds` or `stopping`."""
        resumed = asyncio.ensure_future(self._resumed.wait())
        try:
            await asyncio.wait((resumed, stopping), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            resumed.cancel()
