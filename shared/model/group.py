"""The settings of a group, which together with the log determine its sessions.

The first member writes them as JSON to the znode `groups/<g>`. They are fixed for the group's life: a member
with other values refuses to start. The consumer's core, the audit and control read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from shared.errors import InvalidInput
from shared.model.cluster import Natural

Delivery = Literal["exactly_once", "at_least_once", "at_most_once"]
DELIVERIES: tuple[Delivery, ...] = ("exactly_once", "at_least_once", "at_most_once")


LEAST: Mapping[str, int] = {
    "gap_ms": 1,
    "idle_ms": 1,
    "max_session_fragments": 1,
    "max_session_bytes": 1024,
    "max_session_span_ms": 1,
}
MOST: Mapping[str, int] = {"max_session_fragments": 1_000_000, "max_session_bytes": 1_900_000}
"""A session is one record of at most 2 MB."""


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What ends a session, and how sessions are delivered; docs/protocol.md has the rules. Times are in ms.

    `gap_ms`, `lateness_ms`, `idle_ms`: silence (rule 3 in services/consumer/core/sessions/fold.py). `idle_ms`
    is gap + lateness by default, so that a session without event times ends as late as one with them.
    `future_ms`: how far event time may run ahead of append time; one wrong clock must not end every session.
    `repeat_ms`: how long a key remembers ids after its session. `max_session_…`: the limits of rule 5; a
    session is one Kafka record, hence the limit on bytes.
    """

    gap_ms: Natural = 1_800_000
    lateness_ms: Natural = 300_000
    idle_ms: Natural = 2_100_000
    future_ms: Natural = 300_000
    repeat_ms: Natural = 300_000
    max_session_fragments: Natural = 10_000
    max_session_bytes: Natural = 900 * 1024
    max_session_span_ms: Natural = 86_400_000
    delivery: Delivery = "exactly_once"

    def encode(self) -> bytes:
        """The data of the znode `groups/<g>`."""
        return msgspec.json.encode(self)

    def differences(self, other: GroupSettings, *, but_defaults: bool = False) -> list[str]:
        """One phrase per field in which `other` differs, `name: mine / other's`.

        With `but_defaults`, only of fields that differ from their defaults here.
        """
        may_differ = GroupSettings() if but_defaults else other
        return [
            f"{name}: {getattr(self, name)} / {getattr(other, name)}"
            for name in self.__struct_fields__
            if getattr(self, name) not in (getattr(other, name), getattr(may_differ, name))
        ]


def faults_of(settings: GroupSettings) -> list[str]:
    """One phrase for each setting that lies outside of its bounds.

    >>> faults_of(GroupSettings(gap_ms=0))
    ['gap_ms must be at least 1']
    """
    low = [f"{name} must be at least {n}" for name, n in LEAST.items() if getattr(settings, name) < n]
    return low + [f"{name} must be at most {n}" for name, n in MOST.items() if getattr(settings, name) > n]


def parse_group_settings(raw: bytes) -> GroupSettings:
    """The settings in a group's znode. Raises InvalidInput if they are unreadable."""
    try:
        return msgspec.json.decode(raw, type=GroupSettings)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the group's settings cannot be read: {error}") from None
