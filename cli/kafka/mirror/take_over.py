"""Plans a take-over: what a copy lacks to be an independent Baton, in the order in which it must be done.

Pure. `baton mirror take-over` reads `Copy` and carries the plan out. Each step that is done already is left
out, so the command may be repeated after a crash anywhere. The order: the groups first, because members start
once there is a table; then the broker's time, for which producers wait; then the table, for which members
wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.control.core.groups.rewinds import (
    RewindWish,
    StreamFacts,
    StreamStart,
    check_wish,
    new_settings,
    start_of,
)
from shared.errors import Conflict, InvalidInput, Unavailable
from shared.kafka.admin.append_times import BROKER_TIME, TIMES
from shared.kafka.admin.topics import MIN_INSYNC, needed_insync
from shared.model.group import GroupSettings
from shared.model.names import Names
from shared.model.routing import initial_table
from shared.model.start import GroupStart
from shared.zookeeper.stream_table import WrongNumberOfStreams, count_of


class NotACopy(InvalidInput):
    """There are no fragments topics here, or some are missing."""


class CopyStillGrows(Conflict):
    """MirrorMaker is still running."""


class Undecided(Unavailable):
    """MirrorMaker has left a transaction open, which Kafka ends within a minute."""


class CannotFollow(Conflict):
    """A group that follows would miss fragments, or have some twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """A copied topic: its settings by name, and the replicas of its partitions."""

    settings: Mapping[str, str]
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCopy:
    """A copied stream: its half-open offsets, where the wanted time is, and what its sessions say of it."""

    first: int
    end: int
    at: int | None
    delivered: int
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What is at the target. `copiers`: processes of MirrorMaker. `table`: how many streams the table has,
    None without one. `groups`: those whose znodes exist. `streams`: read only for a group that is to follow.
    `undecided`: topics of fragments in which a transaction is open.
    """

    names: Names
    topics: Mapping[str, TopicFacts]
    copiers: int = 0
    undecided: Sequence[str] = ()
    table: int | None = None
    groups: Mapping[str, GroupStart | None] = field(default_factory=dict)
    streams: Mapping[int, StreamCopy] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of streams. Raises NotACopy."""
        found = count_of(self.names, self.topics)
        missing = [
            self.names.fragments(n) for n in range(found) if self.names.fragments(n) not in self.topics
        ]
        if not found or missing:
            what = f"there is no topic {missing[0]}" if missing else f"there is no {self.names.fragments(0)}"
            raise NotACopy(f"{what}: is this the target of a mirror?")
        return found

    def delivering_groups(self) -> list[str]:
        """The groups whose sessions were copied."""
        default = self.names.sessions("default")
        prefix = f"{default}."
        named = [topic.removeprefix(prefix) for topic in sorted(self.topics) if topic.startswith(prefix)]
        return [*(["default"] if default in self.topics else []), *named]


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """The group that is to follow a copied one: `group`, the new one; `to`: from when on it makes sessions
    anew."""

    follows: str
    group: str
    to: str | int = "latest"
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTopic:
    """Change these settings of a topic."""

    topic: str
    changes: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.topic}: " + ", ".join(f"{name}={value}" for name, value in self.changes.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeGroup:
    """Make the znodes of a group."""

    group: str
    settings: GroupSettings
    start: GroupStart

    def __str__(self) -> str:
        if self.start.is_over:
            return f"group {self.group}: is over, nobody joins it here"
        return f"group {self.group}: follows {self.start.follows}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeTable:
    """Make the stream table."""

    streams: int

    def __str__(self) -> str:
        return f"stream table: {self.streams} streams"


Step = SetTopic | MakeGroup | MakeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver:
    """What is left to do, in order; and where the new group starts, if one is to follow and is not made
    yet."""

    steps: Sequence[Step]
    starts: Sequence[StreamStart] = ()


def check_target(copy: Copy, streams: int | None) -> None:
    """Raises NotACopy, CopyStillGrows, Undecided, WrongNumberOfStreams."""
    count = copy.count
    for found in (streams, copy.table):
        if found not in (None, count):
            raise WrongNumberOfStreams(
                f"{count} fragments topics are here, but there should be {found}; has all been copied?"
            )
    if copy.copiers:
        raise CopyStillGrows(f"{copy.copiers} processes of MirrorMaker are running: stop them, for good")
    if copy.undecided:
        raise Undecided(
            f"MirrorMaker has left a transaction open in {copy.undecided[0]}; Kafka ends it within a minute"
        )


def plan(copy: Copy, streams: int | None = None, following: Following | None = None) -> TakeOver:
    """What is left to do. Raises what `check_target` raises, CannotFollow, InvalidInput."""
    check_target(copy, streams)
    steps: list[Step] = []
    starts: list[StreamStart] = []
    for group in copy.delivering_groups():
        if group not in copy.groups:
            over = GroupStart(follows=None, offsets=dict.fromkeys(range(copy.count), 0), is_over=True)
            steps.append(MakeGroup(group=group, settings=GroupSettings(), start=over))
    if following is not None and not _is_made(copy, following):
        settings = new_settings(GroupSettings(), following.settings)
        starts = starts_of(copy, following)
        start = GroupStart(follows=following.follows, offsets={one.stream: one.start for one in starts})
        steps.append(MakeGroup(group=following.group, settings=settings, start=start))
    steps += _topic_steps(copy)
    if copy.table is None:
        steps.append(MakeTable(streams=copy.count))
    return TakeOver(steps=steps, starts=starts)


def starts_of(copy: Copy, following: Following) -> list[StreamStart]:
    """Where the new group starts: at the wanted time, but where all that began before is delivered.

    Raises CannotFollow, InvalidInput.
    """
    wish = RewindWish(group=following.follows, as_=following.group, to=following.to)
    check_wish(wish, copy.count)
    found = []
    for stream in range(copy.count):
        one = copy.streams[stream]
        if one.fault:
            raise CannotFollow(
                f"stream {stream}: {one.fault}; so sessions of {following.follows!r} name offsets of the "
                "source, and only a group that is alone can start (leave out --follow)"
            )
        facts = StreamFacts(first=one.first, end=one.end, at=one.at, before=one.delivered)
        start = start_of(stream, wish, facts)
        is_open = start.why and not start.taken
        why = f"the fragment at {one.delivered} is in no session" if is_open else start.why
        found.append(_with_why(start, why))
    return found


def _with_why(start: StreamStart, why: str) -> StreamStart:
    return StreamStart(
        stream=start.stream, start=start.start, why=why, records=start.records, taken=start.taken
    )


def _is_made(copy: Copy, following: Following) -> bool:
    """Whether an earlier take-over has made the group. Raises CannotFollow if it is another one."""
    start = copy.groups.get(following.group)
    if start is not None and start.follows == following.follows:
        return True
    if following.group in {*copy.groups, *copy.delivering_groups()}:
        raise CannotFollow(f"there is or was a group {following.group!r}; choose another name")
    if following.follows not in copy.delivering_groups():
        raise CannotFollow(f"no sessions of group {following.follows!r} have been copied")
    return False


def _topic_steps(copy: Copy) -> list[Step]:
    names, steps = copy.names, list[Step]()
    for topic, facts in sorted(copy.topics.items()):
        wanted = {MIN_INSYNC: str(needed_insync(facts.replicas))}
        if names.stream_of(topic) is not None or topic == names.rejected:
            wanted[TIMES] = BROKER_TIME
        # an operator may have set more than is needed
        if int(facts.settings.get(MIN_INSYNC, "1")) >= int(wanted[MIN_INSYNC]):
            del wanted[MIN_INSYNC]
        changes = {name: value for name, value in wanted.items() if facts.settings.get(name) != value}
        if changes:
            steps.append(SetTopic(topic=topic, changes=changes))
    return steps


def table_of(streams: int) -> bytes:
    """The data of the stream table's znode."""
    return initial_table(streams).encode()
