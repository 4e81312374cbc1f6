"""All names that Baton uses in Kafka and ZooKeeper: topics, groups, transactional ids, znodes.

One class builds and parses them, like Samza's ZkKeyBuilder, so that no other file spells a name. A
`namespace` (setting BATON_NAMESPACE, empty by default) separates several Batons on one cluster: `x` gives
topics like `x.fragments.0000`, the Kafka group `x.baton.default` and znodes under `/baton-x`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT_GROUP = "default"
_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9-]{0,40}|")
_GROUP = re.compile(r"[a-z0-9][a-z0-9_-]{0,60}")
_QUEUE = re.compile(r"([a-z0-9][a-z0-9_-]{0,60})(\.dead)?")
DEAD = ".dead"
"""Ends the name of a queue of dead letters."""


def is_group_name(name: str) -> bool:
    """Whether `name` is valid for a group: lower-case letters, digits, `_` and `-`, at most 61."""
    return _GROUP.fullmatch(name) is not None


def is_queue_name(name: str) -> bool:
    """Whether `name` is valid for a queue that somebody creates: like a group's."""
    return is_group_name(name)


def is_namespace(name: str) -> bool:
    """Whether `name` is a valid namespace: empty, or lower-case letters, digits and `-`."""
    return _NAMESPACE.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one Baton.

    >>> Names().fragments(7), Names().sessions("default"), Names().sessions("fraud")
    ('fragments.0007', 'sessions', 'sessions.fraud')
    """

    namespace: str = ""

    # Kafka

    @property
    def _prefix(self) -> str:
        return f"{self.namespace}." if self.namespace else ""

    def topic(self, name: str) -> str:
        """The topic of this name in the namespace, which it may already have.

        >>> Names("x").topic("sessions"), Names("x").topic("x.sessions"), Names().topic("sessions")
        ('x.sessions', 'x.sessions', 'sessions')
        """
        return name if name.startswith(self._prefix) else f"{self._prefix}{name}"

    def fragments(self, stream: int) -> str:
        """The topic of a stream; it has one partition."""
        return f"{self._prefix}fragments.{stream:04d}"

    def stream_of(self, topic: str) -> int | None:
        """The stream with this fragments topic, or None for any other topic."""
        head, dot, number = topic.rpartition(".")
        if dot and head == f"{self._prefix}fragments" and re.fullmatch(r"\d{4}", number):
            return int(number)
        return None

    def sessions(self, group: str) -> str:
        """The topic of a group's finished sessions."""
        return f"{self._prefix}sessions" + ("" if group == DEFAULT_GROUP else f".{group}")

    def checkpoints(self, group: str) -> str:
        """The topic of a group's checkpoints; partition n belongs to stream n alone."""
        return f"{self._prefix}checkpoints.{group}"

    @property
    def events(self) -> str:
        """The topic of the events of all groups."""
        return f"{self._prefix}baton.events"

    @property
    def history(self) -> str:
        """The topic of control's samples of all groups."""
        return f"{self._prefix}baton.history"

    @property
    def rejected(self) -> str:
        """The topic of rejected fragments, for which `stream_of` returns None."""
        return f"{self._prefix}fragments.rejected"

    def replay(self, reason: str) -> str:
        """The Kafka group whose committed offsets say how far rejects with this reason were replayed.

        It differs from every `kafka_group`, since the name of a group has no dot.
        """
        return f"{self._prefix}baton.rejected.{reason}"

    def queue(self, queue: str) -> str:
        """The topic of a queue's own items."""
        return f"{self._prefix}queue.{queue}"

    def queue_log(self, queue: str) -> str:
        """The topic of a queue's commands, with one partition."""
        return f"{self.queue(queue)}.log"

    def queue_of_log(self, topic: str) -> str | None:
        """The queue whose commands are in this topic, or None for any other topic.

        >>> Names().queue_of_log("queue.mail.dead.log"), Names().queue_of_log("queue.mail")
        ('mail.dead', None)
        """
        prefix = f"{self._prefix}queue."
        name = topic.removeprefix(prefix).removesuffix(".log")
        is_log = topic == f"{prefix}{name}.log" and _QUEUE.fullmatch(name) is not None
        return name if is_log else None

    def queue_group(self, queue: str) -> str:
        """The Kafka group whose committed offsets show Kafka's tools how far a queue is."""
        return f"{self._prefix}baton.queue.{queue}"

    def kafka_group(self, group: str) -> str:
        """The Kafka consumer group that commits a group's safe offsets."""
        return f"{self._prefix}baton.{group}"

    def transactional_id(self, group: str, stream: int) -> str:
        """The transactional id with which the owners of a stream fence each other."""
        return f"{self._prefix}baton.{group}.{stream}"

    # ZooKeeper

    @property
    def root(self) -> str:
        return "/baton" + (f"-{self.namespace}" if self.namespace else "")

    @property
    def table(self) -> str:
        """The stream table."""
        return f"{self.root}/streams"

    @property
    def secret(self) -> str:
        """The secret that signs requests if BATON_SECRET is not set."""
        return f"{self.root}/secret"

    @property
    def producers(self) -> str:
        return f"{self.root}/producers"

    def producer(self, producer: str) -> str:
        return f"{self.producers}/{producer}"

    def run_lock(self, group: str, job: str) -> str:
        """The ephemeral node of the run of this job that is under way in this group."""
        return f"{self.root}/runs/{group}/{job}"

    @property
    def lake_lock(self) -> str:
        """The ephemeral node of the only run that may write to a lake on an object store."""
        return f"{self.root}/lake-writer"

    @property
    def upkeep_lock(self) -> str:
        """The ephemeral node of the only run that may maintain the lake's tables, those of all groups."""
        return f"{self.root}/lake-upkeep"

    @property
    def operations(self) -> str:
        return f"{self.root}/operations"

    def operation(self, operation: str) -> str:
        """The persistent node of an operation: as it began, and as it ended."""
        return f"{self.operations}/{operation}"

    @property
    def groups(self) -> str:
        return f"{self.root}/groups"

    def group(self, group: str) -> str:
        """The group's node; its data is the group's settings."""
        return f"{self.groups}/{group}"

    def start(self, group: str) -> str:
        """Whom the group follows and where it starts; only control makes it, with the group."""
        return f"{self.group(group)}/start"

    @property
    def aliases(self) -> str:
        """The other names of groups: JSON, alias → group."""
        return f"{self.root}/aliases"

    def members(self, group: str) -> str:
        return f"{self.group(group)}/members"

    def member(self, group: str, member: str) -> str:
        return f"{self.members(group)}/{member}"

    def streams(self, group: str) -> str:
        return f"{self.group(group)}/streams"

    def stream(self, group: str, stream: int) -> str:
        """The persistent node of a stream in a group: epoch, last owner, target."""
        return f"{self.streams(group)}/{stream}"

    def pins(self, group: str) -> str:
        """The streams that an operator has pinned to members."""
        return f"{self.group(group)}/pins"

    def pause(self, group: str) -> str:
        """The node that stands while the group is paused."""
        return f"{self.group(group)}/pause"

    def claims(self, group: str) -> str:
        return f"{self.group(group)}/claims"

    def claim(self, group: str, stream: int) -> str:
        """The ephemeral node of a claim."""
        return f"{self.claims(group)}/{stream}"
