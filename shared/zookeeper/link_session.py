"""The ZooKeeper session of one link: aiozk's, but it never reconnects and passes every event to us.

Used by `shared/zookeeper/link.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiozk import RetryPolicy, exc, protocol
from aiozk.session import Session


class LinkSession(Session):  # type: ignore[misc]
    """aiozk's session, limited to one connection; it drops the old session only if the server says so."""

    session_id: int | None
    password: bytes
    timeout: float

    def __init__(self, server: str, timeout_s: float, on_event: Callable[[str], None]) -> None:
        super().__init__(server, timeout_s, RetryPolicy.once(), False, None)
        self.on_event = on_event
        self.established = False

    async def establish_session(self) -> None:
        """Opens a session or re-attaches to it.

        Raises SessionLost, after which aiozk opens a new session, only if the server rejects the old one.
        """
        if self.established:
            raise ConnectionAbortedError("a link has one connection only")
        request = protocol.ConnectRequest(
            protocol_version=0,
            last_seen_zxid=self.last_zxid or 0,
            timeout=int(self.timeout * 1000),
            session_id=self.session_id or 0,
            password=self.password,
            read_only=False,
        )
        answer = await self.conn.send_connect(request)
        if answer is None:  # the session may still be alive: the next link tries it again
            raise ConnectionAbortedError("the connection was lost while connecting")
        _, response = answer
        if response.session_id == 0:  # the server's way to say that the session has expired
            raise exc.SessionLost
        self.session_id, self.password = response.session_id, response.password
        self.timeout = response.timeout / 1000
        self.established = True

    def event_dispatch(self, event: Any) -> None:
        """Passes on the event of a watch; the read loop handles those of the connection (type -1)."""
        if event.type > 0:
            self.on_event(event.path)
