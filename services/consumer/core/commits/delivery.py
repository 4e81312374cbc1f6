"""Turns a closed session into the record that delivers it. Pure; `stream.py` uses it."""

from __future__ import annotations

from services.consumer.core.sessions.state import Closed
from shared.model.sessions import Session, encode_session, session_id


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
