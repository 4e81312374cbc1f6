"""Where a group that follows another one starts, and which sessions are current in it.

A group never goes back: to rewind means to make another group that follows the first. Its znode
`groups/<g>/start` says whom it follows, and at which offset of each stream it starts. What began below the
start stays a session of the followed group; from there on, the group makes its own. So every fragment stands
in exactly one *current* session (docs/adr/0046-a-group-never-goes-back.md). Pure. Control writes the start;
the consumer and the audit read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from shared.errors import InvalidInput
from shared.model.cluster import Natural
from shared.model.head import Head

MAX_CHAIN = 100
"""A group follows at most so many others, one after the other: a longer chain is taken for a circle."""


class GroupStart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data of `groups/<g>/start`, JSON.

    `follows`: the group that it follows, None for one that follows nobody. `offsets`: by stream, the offset
    at which it starts; None if its log was made anew, so that nothing of it stands in the followed group.
    `logs`: by stream, the number of the followed group's log (`Head.log`) where it is not 0. `appended`: by
    stream, the append time (ms) of the record before the start, by which the log is recognized. `is_over`:
    the group worked at a cluster that was lost, and only its sessions are here (docs/mirror.md); nobody
    joins it.
    """

    follows: str | None
    offsets: dict[Natural, Natural | None]
    logs: dict[Natural, Natural] = {}
    appended: dict[Natural, int] = {}
    is_over: bool = False

    def encode(self) -> bytes:
        """The data of the znode."""
        return msgspec.json.encode(self)

    def offset(self, stream: int) -> int | None:
        """Where the stream starts. Raises InvalidInput if the start does not say."""
        if stream not in self.offsets:
            raise InvalidInput(f"the group's start has no offset of stream {stream}")
        return self.offsets[stream]


def parse_start(raw: bytes) -> GroupStart:
    """The start in a group's znode. Raises InvalidInput if it is unreadable."""
    try:
        return msgspec.json.decode(raw, type=GroupStart)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the group's start cannot be read: {error}") from None


def parse_aliases(raw: bytes) -> dict[str, str]:
    """Alias → group, as in the znode of the aliases. Raises InvalidInput if it is unreadable."""
    try:
        return msgspec.json.decode(raw, type=dict[str, str]) if raw else {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the aliases cannot be read: {error}") from None


class Cut(NamedTuple):
    """Which sessions of another group are current, of one stream: those of its log with number `log` that
    began below the offset `below` (None: all), and all of its earlier logs.
    """

    group: str
    below: int | None
    log: int = 0

    def holds(self, first_offset: int, log: int = 0) -> bool:
        """Whether the group's session with this first offset, of its log with this number, is current."""
        if log != self.log:
            return log < self.log
        return self.below is None or first_offset < self.below


def cuts_of(chain: Sequence[GroupStart], stream: int) -> list[Cut]:
    """What is current of the groups that a group follows, the nearest first; its own sessions all are.

    `chain`: the group's start, that of the group it follows, and so on; empty for a group that follows
    nobody. Raises InvalidInput if one of them lacks the stream.

    >>> first = GroupStart(follows="a", offsets={0: 70})
    >>> cuts_of([GroupStart(follows="b", offsets={0: 90}), first], 0)
    [Cut(group='b', below=90, log=0), Cut(group='a', below=70, log=0)]
    >>> cuts_of([GroupStart(follows="b", offsets={0: 50}), first], 0)
    [Cut(group='b', below=50, log=0), Cut(group='a', below=50, log=0)]
    """
    below: int | None = None
    cuts = []
    for start in chain:
        if start.follows is None:
            break
        offset, log = start.offset(stream), start.logs.get(stream, 0)
        # the sessions of a log that is gone cannot be made again, so no start on the new one cuts them
        below = offset if below is None or offset is None else min(below, offset)
        cuts.append(Cut(start.follows, below, log))
        if log:
            below = None  # that group was started over, so its own start lies in a log before this one
    return cuts


def reaching_cuts(chain: Sequence[GroupStart], stream: int) -> list[Cut]:
    """Those of `cuts_of` whose sessions may reach the start: not beyond a log that was made anew or a group
    that was started over, because sessions of a log that is gone cover nothing of the one that is there.
    Raises InvalidInput.

    >>> lost = [GroupStart(follows="b", offsets={0: 5}), GroupStart(follows="a", offsets={0: None})]
    >>> reaching_cuts(lost, 0)
    [Cut(group='b', below=5, log=0)]
    """
    reaching = []
    for cut in cuts_of(chain, stream):
        if cut.below is None:
            break
        reaching.append(cut)
        if cut.log:
            break
    return reaching


def latest_start(head: Head | None, before: int | None) -> int:
    """The highest offset at which another group may start: everything that began below is delivered.

    `head`: the followed group's, None if it has none; `before`: where that group starts itself (None: at the
    beginning of the log). Raises InvalidInput if the head does not say what is open.
    """
    if head is None:
        return before or 0
    if head.oldest is None:
        raise InvalidInput("the head is of a version that did not say what is open; the next commit does")
    return head.position if head.oldest < 0 else min(head.oldest, head.position)


def followers_of(group: str, starts: Mapping[str, GroupStart]) -> list[str]:
    """The groups that follow this one directly, by their starts."""
    return sorted(name for name, start in starts.items() if start.follows == group)
