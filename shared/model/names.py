"""Every name that Baton gives in Kafka and ZooKeeper: topics, groups, transactional ids, znodes.

One class builds (and parses) them all, after Samza's ZkKeyBuilder, so that no other file spells one.
A `namespace` (setting BATON_NAMESPACE, empty by default) sets several Batons apart on one cluster:
`x` gives topics `x.fragments.0000`, the Kafka group `x.baton.default` and znodes under `/baton-x`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT_GROUP = "default"
_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9-]{0,40}|")
_GROUP = re.compile(r"[a-z0-9][a-z0-9_-]{0,60}")


def is_group_name(name: str) -> bool:
    """Whether `name` may name a group: lower-case letters, digits, `_` and `-`, at most 61."""
    return _GROUP.fullmatch(name) is not None


def is_namespace(name: str) -> bool:
    """Whether `name` may be a namespace: empty, or lower-case letters, digits and `-`."""
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

    def fragments(self, stream: int) -> str:
        """The one-partition topic of a stream."""
        return f"{self._prefix}fragments.{stream:04d}"

    def stream_of(self, topic: str) -> int | None:
        """The stream whose fragments topic this is, or None for any other topic."""
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
        """The topic of what happened, in all groups."""
        return f"{self._prefix}baton.events"

    @property
    def rejected(self) -> str:
        """The topic of refused fragments; no stream's (see `stream_of`)."""
        return f"{self._prefix}fragments.rejected"

    def replay(self, reason: str) -> str:
        """The Kafka group whose committed offsets say how far rejects of this reason were sent again.

        No group's own (see `kafka_group`), since no group's name has a dot.
        """
        return f"{self._prefix}baton.rejected.{reason}"

    def kafka_group(self, group: str) -> str:
        """The Kafka consumer group whose committed offsets are a group's safe offsets."""
        return f"{self._prefix}baton.{group}"

    def transactional_id(self, group: str, stream: int) -> str:
        """The transactional id by which the owners of a stream fence each other."""
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
        """What members and control sign their requests with, where BATON_SECRET is not set."""
        return f"{self.root}/secret"

    @property
    def producers(self) -> str:
        return f"{self.root}/producers"

    def producer(self, producer: str) -> str:
        return f"{self.producers}/{producer}"

    @property
    def groups(self) -> str:
        return f"{self.root}/groups"

    def group(self, group: str) -> str:
        """The group's node; its data are the group's settings."""
        return f"{self.groups}/{group}"

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

    def claims(self, group: str) -> str:
        return f"{self.group(group)}/claims"

    def claim(self, group: str, stream: int) -> str:
        """The ephemeral node of a claim."""
        return f"{self.claims(group)}/{stream}"
