"""A finished session: its id, and its JSON in the topic `sessions`.

Pure. The consumer's core writes sessions; control, the CLI and the tests read them. The fragments are joined
as the bytes that were posted, never decoded and encoded again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import msgspec

Reason = Literal["end", "gap", "limit"]


def session_id(group: str, stream: int, key: str, first_offset: int, log: int = 0) -> str:
    """The id of the session of `key` with its first fragment at `first_offset`: 32 hex digits.

    It is the same in every replay and for every owner, so readers recognise a session delivered twice.
    `log`: the stream's log (`Head.log`). A stream that an operator started over reads another log, in which
    the same offset holds another fragment, so its number enters the id. The first log has none.

    >>> session_id("default", 0, "visitor-1", 7)
    'efe7f956ff60e2a9957663374423d4f3'
    >>> session_id("default", 0, "visitor-1", 7, log=52)
    'd357e11f2cb6a84c879fe1914fe4aa52'
    """
    name = f"{group}\n{stream}\n{first_offset}\n{key}"
    if log:
        name = f"log {log}\n{name}"
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


class Session(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delivered session as readers see it; times are integer ms UTC.

    `opened_at`: append time of the first fragment; `closed_at`: A when it was closed; `bytes`: sum of
    the fragments' sizes; `log`: the log that they stand in, left out for a stream's first one; `data`: the
    fragments as posted.
    """

    id: str
    group: str
    key: str
    stream: int
    epoch: int
    first_offset: int
    last_offset: int
    first_time: int
    last_time: int
    opened_at: int
    closed_at: int
    fragments: int
    bytes: int
    reason: Reason
    log: int = 0
    data: list[msgspec.Raw]


_decode = msgspec.json.Decoder(Session).decode


def parse_session(raw: bytes) -> Session:
    """The session in a record's value. Raises msgspec.DecodeError (a ValueError) for anything else."""
    return _decode(raw)


def encode_session(session: Session, data: Sequence[bytes]) -> bytes:
    """The JSON of a session with `data` as its fragments; the session's own `data` must be empty."""
    head = msgspec.json.encode(session)
    # the struct ends with `"data":[]}`: put the fragments between the brackets
    return b"".join((head[:-2], b",".join(data), b"]}"))
