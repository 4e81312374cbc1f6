"""The events of a group in the topic `baton.events`: one for every movement of a stream or member.

Pure. Members write events and control reads them for `GET /events`; both use this definition. A record's
value is the event as JSON without the fields that do not apply; its id is its offset in the topic.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec

from shared.errors import InvalidInput
from shared.model.fragments import MAX_TIME_MS

Kind = Literal[
    "join", "leave", "claim", "release", "handover", "takeover",
    "expiry", "fence", "reset", "cut", "rewind", "action",
]  # fmt: skip
"""`takeover`: a claim without a handover has reached the last owner's position; `expiry`: a ZooKeeper session
ended; `fence`: a later owner wrote; `reset`: ZooKeeper lost its data, Kafka did not; `cut`: retention deleted
records before they were accounted for; `rewind`: the log lost its end; `action`: a person or a schedule had
control do something."""
KINDS: tuple[Kind, ...] = get_args(Kind)
MAX_EVENT_BYTES = 16 * 1024
"""Far above the size of any event; bounds the memory of control, which keeps thousands of them."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event at `at` (ms UTC, by the reporter's clock); None and "" mean that a field does not apply.

    `source` and `target` (in JSON `from` and `to`) are members. `pause_ms` is the time from the donor's last
    record to the recipient's first; of a takeover, from the end of the last claim (which a member's death
    ends only with its ZooKeeper session) to the end of the replay. `warm` means that the owner continued from
    memory, without a replay. Of an action: `who` did it, `what` it was (`drain`, `run lake`, …), and the id
    of the operation or run, or the `queue`; then `group` is "", because queues belong to none.

    >>> encode_event(Event(at=5, group="default", kind="join", member="m1"))
    b'{"at":5,"group":"default","kind":"join","member":"m1"}'
    """

    # years that a calendar can show
    at: Annotated[int, msgspec.Meta(ge=0, le=MAX_TIME_MS)]
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
    who: str = ""
    what: str = ""
    operation: str = ""
    run: str = ""
    queue: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode


def encode_event(event: Event) -> bytes:
    """The event as a record's value. Raises InvalidInput if it is too large or contains invalid text."""
    try:
        raw = _encode(event)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the event cannot be encoded: {error}") from None
    if len(raw) > MAX_EVENT_BYTES:
        raise InvalidInput(f"the event has {len(raw)} bytes, more than {MAX_EVENT_BYTES}")
    return raw


def parse_event(raw: bytes) -> Event:
    """The event in a record's value; ignores unknown fields, which a later version may add.

    Raises InvalidInput, with the reason, for anything else.

    >>> parse_event(b'{"at":5,"group":"g","kind":"handover","stream":3,"from":"m1","to":"m2"}').target
    'm2'
    """
    if len(raw) > MAX_EVENT_BYTES:
        raise InvalidInput(f"the event has {len(raw)} bytes, more than {MAX_EVENT_BYTES}")
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"not an event: {error}") from None
