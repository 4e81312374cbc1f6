"""What happened in a group, as the topic `baton.events` keeps it: one event for every movement.

Pure. Members tell events, control reads them back for `GET /events`; both use this one definition. A
record's value is the event as JSON, what does not apply left out; its id is its offset in the topic.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from shared.errors import InvalidInput

Kind = Literal["join", "leave", "claim", "release", "handover", "expiry", "fence", "reset", "cut", "rewind"]
"""`expiry`: a ZooKeeper session ended; `fence`: a later owner wrote; `reset`: ZooKeeper forgot, Kafka did
not; `cut`: retention took records before they were accounted for; `rewind`: the log lost its end."""
KINDS: tuple[Kind, ...] = get_args(Kind)
MAX_EVENT_BYTES = 16 * 1024
"""Far above what any event takes, so that those who keep thousands of them know how much that may be."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened at `at` (ms UTC, by the teller's clock); None and "" are what does not apply.

    `source` and `target` (on the wire `from` and `to`) are members; `pause_ms` is the time from the
    donor's last record to the recipient's first; `warm`: the owner went on from memory, without a replay.

    >>> encode_event(Event(at=5, group="default", kind="join", member="m1"))
    b'{"at":5,"group":"default","kind":"join","member":"m1"}'
    """

    at: int
    group: str
    kind: Kind
    member: str = ""
    stream: int | None = None
    epoch: int | None = None
    source: str = msgspec.field(name="from", default="")
    target: str = msgspec.field(name="to", default="")
    why: str = ""
    sessions: int | None = None
    bytes: int | None = None
    copy_ms: float | None = None
    pause_ms: float | None = None
    warm: bool | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode


def encode_event(event: Event) -> bytes:
    """The event as a record's value. Raises InvalidInput when it is too large, or holds what is no text."""
    try:
        raw = _encode(event)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"not to be written: {error}") from None
    if len(raw) > MAX_EVENT_BYTES:
        raise InvalidInput(f"an event of {len(raw)} bytes: at most {MAX_EVENT_BYTES}")
    return raw


def parse_event(raw: bytes) -> Event:
    """The event that a record's value holds; fields that a later version may add are passed over.

    Raises InvalidInput, with what is wrong, for anything else.

    >>> parse_event(b'{"at":5,"group":"g","kind":"handover","stream":3,"from":"m1","to":"m2"}').target
    'm2'
    """
    if len(raw) > MAX_EVENT_BYTES:
        raise InvalidInput(f"an event of {len(raw)} bytes: at most {MAX_EVENT_BYTES}")
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"not an event: {error}") from None
