"""Open sessions as the owner of their stream reports them to control; the shape of both ends.

Pure. Offsets are those of the stream's fragments topic; times are integer ms UTC, -1 where there is none yet.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

SHOWN = 10
"""How many sessions of a stream an answer has, of each kind."""
MOST_FRAGMENTS = 100
"""How many fragments of a session an answer has, the newest ones."""
MOST_FRAGMENT_BYTES = 256 * 1024
"""Their size together; one fragment is always there."""


class OpenSessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session that has not ended."""

    key: str
    first_offset: int
    last_offset: int
    first_time: Annotated[int, Meta(description="the lowest event time of its fragments (ms UTC)")]
    last_time: Annotated[int, Meta(description="the highest event time of its fragments (ms UTC)")]
    opened_at: Annotated[int, Meta(description="when its first fragment was appended (ms UTC)")]
    last_at: Annotated[int, Meta(description="when its last fragment was appended (ms UTC)")]
    fragments: int
    bytes: int
    parked: Annotated[bool, Meta(description="whether fragments of it stand in the checkpoint")]
    silent_after: Annotated[
        int, Meta(description="it ends once an event time of the stream is above this (ms UTC)")
    ]
    idle_after: Annotated[int, Meta(description="it ends once an append time is above this (ms UTC)")]


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was set aside."""

    offset: int
    why: str


class HeldKey(msgspec.Struct, frozen=True, kw_only=True):
    """What the owner of a stream holds of one key; `data`: the session's newest fragments, as posted."""

    stream: int
    epoch: int
    position: int
    w: int
    a: int
    open: OpenSessionRow | None
    data: list[str]


class HeldStream(msgspec.Struct, frozen=True, kw_only=True):
    """What the owner of a stream holds: `oldest` by first offset, `heaviest` by bytes, at most SHOWN each.

    `last_unreadable`: the last record that this owner itself has set aside.
    """

    stream: int
    epoch: int
    position: int
    w: int
    a: int
    open_sessions: int
    oldest: list[OpenSessionRow]
    heaviest: list[OpenSessionRow]
    last_unreadable: Unreadable | None
