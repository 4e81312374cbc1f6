"""What follows what among groups: which sessions are current, and when a group may be promoted or deleted.

Pure. `rewinds.py` decides where a group starts that follows another one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from shared.errors import Conflict
from shared.model.head import Head
from shared.model.names import Names
from shared.model.start import GroupStart, cuts_of, followers_of


class GroupInUse(Conflict):
    """The group has members, an alias, or a group that follows it."""


class GroupChanged(Conflict):
    """Somebody else was faster."""


class GroupBehind(Conflict):
    """The group has not read as far as the one whose name it is to get."""


class NameTaken(Conflict):
    """A group of this name exists, or has existed: its sessions are still in Kafka."""


class StreamCut(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions of a stream are current: of the log with this number those with `first_offset` below
    `below`, and all of logs with lower numbers.
    """

    stream: int
    below: Annotated[int | None, Meta(description="null: all")]
    log: int


class CurrentGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of whose sessions some are current."""

    group: str
    topic: str
    cuts: Annotated[list[StreamCut] | None, Meta(description="null: all its sessions are current")]


class CurrentRow(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions that are current in a group: every fragment stands in exactly one of them."""

    group: str
    follows: Annotated[list[str], Meta(description="the groups that it follows, the nearest first")]
    followers: Annotated[list[str], Meta(description="the groups that follow it directly")]
    aliases: Annotated[list[str], Meta(description="its other names")]
    current: list[CurrentGroup]
    sql: Annotated[str, Meta(description="a query of the table `sessions` that returns just these")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """What a deletion depends on; `starts`: those of all groups."""

    group: str
    members: Sequence[str]
    aliases: Mapping[str, str]
    starts: Mapping[str, GroupStart]


def check_deletion(state: GroupState) -> None:
    """Raises GroupInUse, naming what uses the group."""
    name = repr(state.group)
    if state.members:
        raise GroupInUse(f"group {name} has members: {', '.join(sorted(state.members))}; stop them first")
    if named := aliases_of(state.group, state.aliases):
        raise GroupInUse(f"group {name} has the alias {named[0]!r}; promote another group to it first")
    if followers := followers_of(state.group, state.starts):
        raise GroupInUse(f"group {name} is followed by {', '.join(followers)}; delete them first")


def check_caught_up(
    mine: Mapping[int, Head],
    others: Mapping[int, Head],
    other: str,
    ends: Mapping[int, int],
    anew: Collection[int] = (),
) -> None:
    """Raises GroupBehind unless each stream has read as far as the safe offset of the `other` group, or to
    the end of the log, which lies below if the log was lost.

    `ends`: by stream. `anew`: streams of whose present log the other group has read nothing.
    """
    for stream, head in sorted(others.items()):
        if stream in anew:
            continue
        position = mine[stream].position if stream in mine else 0
        if position < min(head.safe_offset, ends.get(stream, head.safe_offset)):
            raise GroupBehind(
                f"stream {stream} has read to {position}, but {other!r} needs nothing below "
                f"{head.safe_offset} any more"
            )


def made_anew(chain: Sequence[GroupStart], other: str) -> set[int]:
    """The streams whose logs were made anew on the way from the group with this chain to the `other`; none
    if it does not follow that one.
    """
    found: set[int] = set()
    for start in chain:
        found |= {stream for stream, offset in start.offsets.items() if offset is None}
        if start.follows == other:
            return found
    return set()


def aliases_of(group: str, aliases: Mapping[str, str]) -> list[str]:
    """The aliases that name the group."""
    return sorted(alias for alias, named in aliases.items() if named == group)


def current_in(
    group: str,
    chain: Sequence[GroupStart],
    count: int,
    names: Names,
    *,
    starts: Mapping[str, GroupStart],
    aliases: Mapping[str, str],
) -> CurrentRow:
    """The current sessions of a group with `count` streams; `chain`: its start, and those it follows.

    Raises InvalidInput if one of the starts lacks a stream.
    """
    cuts = [cuts_of(chain, stream) for stream in range(count)]
    current = [CurrentGroup(group=group, topic=names.sessions(group), cuts=None)]
    for level, followed in enumerate(one.follows for one in chain if one.follows is not None):
        rows = [
            StreamCut(stream=stream, below=of_stream[level].below, log=of_stream[level].log)
            for stream, of_stream in enumerate(cuts)
        ]
        current.append(CurrentGroup(group=followed, topic=names.sessions(followed), cuts=rows))
    return CurrentRow(
        group=group,
        follows=[one.group for one in current[1:]],
        followers=followers_of(group, starts),
        aliases=aliases_of(group, aliases),
        current=current,
        sql=sql_of(current),
    )


def sql_of(current: Sequence[CurrentGroup]) -> str:
    """The query of the table `sessions` that returns the current ones.

    >>> print(sql_of([CurrentGroup(group="b", topic="", cuts=None)]))
    SELECT * FROM sessions WHERE
      "group" = 'b'
    """
    return "SELECT * FROM sessions WHERE\n  " + "\n  OR ".join(map(_condition, current))


def _condition(one: CurrentGroup) -> str:
    of_group = f"\"group\" = '{one.group}'"
    if one.cuts is None:
        return of_group
    return f"{of_group} AND ({' OR '.join(map(_of_stream, one.cuts))})"


def _of_stream(cut: StreamCut) -> str:
    # rows of an earlier version have no log; theirs was the first
    of_stream, log = f"stream = {cut.stream}", "coalesce(log, 0)"
    below = "" if cut.below is None else f" AND first_offset < {cut.below}"
    older = f" OR {of_stream} AND {log} < {cut.log}" if cut.log else ""
    return f"{of_stream} AND {log} = {cut.log}{below}{older}"
