"""The head: a summary of a stream's last commit, which says where a new owner begins.

A Kafka group can store text beside each offset that it commits. Baton commits the safe offset, and the text
is the head. So every Kafka tool shows it, a new owner reads it in 1–3 ms, and it changes in the same
transaction as the offset. Kafka allows 4,096 bytes; a head has a tenth of that. The consumer writes it;
control and the audit read it. Why: docs/adr/0005-the-head-rides-on-the-offset.md.
"""

from __future__ import annotations

import msgspec

from shared.errors import InvalidInput

NOTHING = -1
"""W or A of an empty log: below every time."""
_KEYS = {"checkpoint_from": "ck", "newest": "last"}
"""Names of fields in the stored JSON."""


class Counts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stream's totals in a group, from its first record up to the head's position.

    `fragments` and `bytes` count every readable fragment, including repeats; `delivered` and
    `delivered_bytes` count those in closed `sessions`, `covered` those that stand in sessions of a group that
    this one follows. They are committed with the head, so a crash neither loses nor duplicates a count.
    """

    fragments: int = 0
    bytes: int = 0
    repeats: int = 0
    markers: int = 0
    ticks: int = 0
    unreadable: int = 0
    sessions: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    covered: int = 0


class Head(msgspec.Struct, frozen=True, kw_only=True, rename=_KEYS):
    """A stream's state as of its last commit.

    `0 <= safe_offset <= position`. `w`, `a`: W and A (ms) just before the safe offset, -1 for none: a replay
    starts there, so it needs the values there. `checkpoint_from`, `newest`: offsets in the stream's
    checkpoints partition, of the first record of the last whole set and of the newest record, -1 without one
    (`ck` and `last` in JSON). `seq` grows by one with each commit of the stream, whoever its owner is.

    `appended`: append time (ms) of the record before the position, -1 if unknown; a log with another one
    there is another log. `closing`: append time of the record at the position if it was folded in part, that
    is, if only some of what it closes is delivered; -1 if not. `log`: number of the stream's log, 0 for the
    first (see `session_id`). `oldest`: the lowest first offset of the sessions that are open, parked or not;
    -1 if none is, None if unknown. `silent_to`: all sessions that silence had ended at this position are
    delivered; below `position` while what it has ended since is committed in parts.
    Heads of versions that did not know one of these fields have its default.
    """

    epoch: int
    seq: int
    position: int
    safe_offset: int
    w: int = NOTHING
    a: int = NOTHING
    checkpoint_from: int = -1
    newest: int = -1
    appended: int = NOTHING
    closing: int = NOTHING
    log: int = 0
    oldest: int | None = None
    silent_to: int = 0
    counts: Counts = Counts()

    @property
    def known_end(self) -> int:
        """The offset after the newest record that it accounts for, wholly or in part: its log reaches it."""
        return self.position + (self.closing != NOTHING)

    @property
    def known_appended(self) -> int:
        """Append time (ms) of the record before `known_end`, -1 if unknown."""
        return self.appended if self.closing == NOTHING else self.closing

    def metadata(self) -> str:
        """The head as JSON, for the metadata of the committed offset, which is the safe offset itself."""
        fields = msgspec.structs.asdict(self)
        # it is the committed offset itself: written twice, the two could disagree
        del fields["safe_offset"]
        return msgspec.json.encode(_Metadata(**fields)).decode()


class _Metadata(msgspec.Struct, kw_only=True, omit_defaults=True, rename=_KEYS | {"w": "W", "a": "A"}):
    epoch: int
    seq: int
    position: int
    w: int
    a: int
    checkpoint_from: int
    newest: int
    appended: int = NOTHING
    closing: int = NOTHING
    log: int = 0
    oldest: int | None = None
    silent_to: int = 0
    counts: Counts = Counts()


def parse_head(safe_offset: int, metadata: str) -> Head:
    """The head of a committed offset. Raises InvalidInput if the metadata is not a head."""
    try:
        found = msgspec.json.decode(metadata, type=_Metadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the committed offset {safe_offset} carries no head: {error}") from None
    # an offset that another tool has moved must not look like a head
    if not 0 <= safe_offset <= found.position:
        raise InvalidInput(f"the head's position {found.position} is below its offset {safe_offset}")
    return Head(safe_offset=safe_offset, **msgspec.structs.asdict(found))
