"""Turns closed sessions into the records that deliver them. Pure; `stream.py` uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from services.consumer.core.sessions.state import Closed
from shared.model.sessions import Session, encode_session, session_id


class Deliveries(Sequence[tuple[bytes, bytes]]):
    """Key and value of each closed session's record, encoded when it is read.

    So a commit's sessions need not all be encoded at once, nor held twice. `epoch` is that of the owner who
    delivers them, `log` the stream's log (`Head.log`).
    """

    def __init__(self, closed: Sequence[Closed], group: str, stream: int, epoch: int, log: int) -> None:
        self._closed = closed
        self._of = group, stream, epoch, log

    def __repr__(self) -> str:
        return f"<Deliveries: {len(self)} of {self._of}>"

    def __len__(self) -> int:
        return len(self._closed)

    @overload
    def __getitem__(self, number: int) -> tuple[bytes, bytes]: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[tuple[bytes, bytes]]: ...
    def __getitem__(self, number: int | slice) -> tuple[bytes, bytes] | Sequence[tuple[bytes, bytes]]:
        if isinstance(number, slice):
            return Deliveries(self._closed[number], *self._of)
        return delivered(self._closed[number], *self._of)


def delivered(closed: Closed, group: str, stream: int, epoch: int, log: int = 0) -> tuple[bytes, bytes]:
    """Key and value of the session's record; `epoch` is that of the owner who delivers it, `log` the stream's
    log (`Head.log`)."""
    session = closed.session
    value = encode_session(
        Session(
            id=session_id(group, stream, session.key, session.first_offset, log),
            group=group,
            key=session.key,
            stream=stream,
            epoch=epoch,
            first_offset=session.first_offset,
            last_offset=session.last_offset,
            first_time=session.low_t,
            last_time=session.last_t,
            opened_at=session.opened_at,
            closed_at=closed.closed_at,
            fragments=len(session.data),
            bytes=session.bytes,
            reason=closed.reason,
            log=log,
            data=[],
        ),
        session.data,
    )
    return session.key.encode(), value
