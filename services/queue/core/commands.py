"""The commands of a queue, and the bytes of a record that holds them: the only writes that change a queue.

A record of the log is msgpack: `[writer, number, [command, …], incarnation]`, each command an array that
begins with its name. `writer` and `number` let a worker find its own record again; they decide nothing. The
incarnation says for which life of the queue the commands are meant. What a command does is in fold.py. Used
by the worker, which writes them, and by replica.py, which reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from shared.errors import InvalidInput

RULES = 2
"""Number of the rules by which the commands are folded: a worker that does not know a queue's refuses it.

Since 2 a queue has an incarnation. A queue with rules 1 has none, and is folded as one whose own is b"".
"""
INCARNATION_BYTES = 16

MAX_LEASED = 100
"""Items of one lease."""
Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class Receipt(NamedTuple):
    """One lease of one item: partition and offset of the item, and offset of the record that leased it."""

    partition: Natural
    offset: Natural
    lease: Natural


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The settings of a queue. `rules`, `over`, `partitions` and `incarnation` are fixed at its creation.

    `over`: the existing topic whose records are the items; "": a topic of its own. `max_attempts`: after so
    many leases an item is a dead letter; 0: never. `keep_ms`: how long items stay in a topic of its
    own once they are put; longer while they are not done. `incarnation`: drawn at the creation, so that a
    queue takes no record and no receipt of another one that had its name and was deleted.
    """

    rules: int = RULES
    over: str = ""
    partitions: Positive = 1
    lease_ms: Positive = 30_000
    max_attempts: Natural = 5
    repeat_ms: Natural = 300_000
    keep_ms: Natural = 86_400_000
    incarnation: Annotated[bytes, msgspec.Meta(max_length=64)] = b""

    @property
    def fixed(self) -> tuple[int, str, int]:
        """What no later command changes, of what clients know."""
        return self.rules, self.over, self.partitions


class Lease(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="lease"):
    """Leases the next `count` items for `ms`; new ones only below `ends`, which the writer has read.

    `starts` is where the partitions begin, if retention has taken items: there is nothing to lease below.
    """

    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_LEASED)]
    ms: Positive
    ends: tuple[Natural, ...]
    starts: tuple[Natural, ...] = ()


class Enter(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="enter"):
    """Enters the id of a leased item before it is handed out: the second item with an id is a repeat."""

    receipt: Receipt
    id: str


class Ack(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ack"):
    """The items are done; their ids stay known for a while."""

    receipts: tuple[Receipt, ...]


class Dead(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="dead"):
    """The items are done, since copies of them are in the queue of dead letters; their ids are forgotten.

    `is_bare`: the copies are without their values.
    """

    receipts: tuple[Receipt, ...]
    is_bare: bool = False


class Until(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="until"):
    """The leases end in `ms` from now: extended, or `is_release`: given back, to be leased again then.

    `is_unseen`: no client has had the items, so these leases do not count as attempts. `is_at_least`: a lease
    that ends later keeps its end.
    """

    receipts: tuple[Receipt, ...]
    ms: Natural
    is_release: bool = False
    is_unseen: bool = False
    is_at_least: bool = False


def given_back(receipts: Sequence[Receipt]) -> Until:
    """Gives back what no client has seen, so that it can be leased again at once."""
    return Until(tuple(receipts), 0, is_release=True, is_unseen=True)


class Seek(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="seek"):
    """Moves each partition's frontier, except where it is None; `drop`: what is open is done, too.

    `ends`: where the partitions ended for the writer. Whoever seeks to the end skips what is there: such a
    partition never goes back, and neither does any with `drop`. Items may have been put beyond `ends`, leased
    and acked meanwhile; to hand them out again would break the promise of the ack. It is alone in its record.
    """

    to: tuple[Natural | None, ...]
    drop: bool = False
    ends: tuple[Natural, ...] = ()

    def goes_to(self, partition: int, frontier: int) -> int:
        """Where the partition's frontier goes from where it is."""
        to = self.to[partition]
        if to is None:
            return frontier
        is_skip = self.drop or (partition < len(self.ends) and to >= self.ends[partition])
        return max(to, frontier) if is_skip else to


Changeable: TypeAlias = Literal["lease_ms", "max_attempts", "repeat_ms", "keep_ms"]
"""The settings that may change after the queue's creation."""
CHANGEABLE: Final[tuple[Changeable, ...]] = get_args(Changeable)


class Configure(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="settings"):
    """Creates the queue with these settings; or changes only `fields` of them, if it is there already.

    So two who change different fields at the same time keep each other's. None: all that may change.
    """

    settings: QueueSettings
    fields: tuple[Changeable, ...] | None = None


class SnapshotPart(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="snapshot"):
    """Part `part` of `parts` of the state right after the record at offset `through`. It has no effect."""

    through: Natural
    part: Natural
    parts: Positive
    data: bytes


AnyCommand = Lease | Enter | Ack | Dead | Until | Seek | Configure | SnapshotPart


class CommandRecord(msgspec.Struct, frozen=True, array_like=True):
    """What one record of the log holds. `incarnation`: b"" before the queue is created, and with rules 1."""

    writer: bytes
    number: int
    commands: tuple[AnyCommand, ...]
    incarnation: bytes = b""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CommandRecord).decode


def encode_record(
    writer: bytes, number: int, commands: Sequence[AnyCommand], incarnation: bytes = b""
) -> bytes:
    """The value of a record with these commands."""
    return _encode(CommandRecord(writer, number, tuple(commands), incarnation))


def decode_record(value: bytes) -> CommandRecord:
    """The commands in a record. Raises InvalidInput if it is none; then it has no effect."""
    try:
        return _decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"not a record of commands: {error}") from None
