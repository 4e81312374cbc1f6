"""The way to a connection's client: what is written, and how it ends. Used by `connection.py`."""

from __future__ import annotations

import asyncio


class Outlet:
    """Writes until it is over; what the client sends after that is of no interest.

    `may_reset`: whether something unread may have arrived. Then a close would reset the connection, which may
    destroy answers that the client has not read; so only our half is closed.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.may_reset = False
        self.is_full = False
        """Whether the client should read before more is written; see `fill`."""
        self.is_paused = False
        """Whether nothing is read."""
        self._is_over = False
        self._drained = asyncio.Event()
        self._drained.set()

    def __repr__(self) -> str:
        return f"<Outlet{', over' * self.is_over}>"

    @property
    def is_over(self) -> bool:
        """Whether nothing more is written."""
        return self._is_over or self.transport.is_closing()

    @property
    def can_end_apart(self) -> bool:
        """Whether each side may end alone; not over TLS, where Python knows one end for both."""
        return self.transport.can_write_eof()

    def fill(self, is_full: bool) -> None:
        """The transport has too much to write, or has no longer."""
        self.is_full = is_full
        self._drained.clear() if is_full else self._drained.set()

    async def drained(self) -> None:
        """Returns when it is not full, or over."""
        await self._drained.wait()

    def write(self, data: bytes) -> None:
        """Writes it, unless that is over."""
        if not self.is_over:
            self.transport.write(data)

    def pause_reading(self, pauses: bool) -> bool:
        """Stops or resumes what the transport reads; whether it has resumed."""
        if pauses is self.is_paused or self.is_over:
            return False
        self.is_paused = pauses
        if pauses:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
        return not pauses

    def close(self) -> None:
        """Ends the connection once everything is written, or once the client has seen that."""
        if self.is_over:
            return
        if self.may_reset and self.can_end_apart:
            self.pause_reading(False)  # to see the client's end
            self.transport.write_eof()
        else:
            self.transport.close()
        self._is_over = True

    def lose(self) -> None:
        """The connection is lost."""
        self._is_over = True
        self._drained.set()
