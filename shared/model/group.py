"""The settings of a group: what makes its sessions a function of the log.

They stand as JSON at the znode `groups/<g>`, made by the first member and fixed for the group's
life: a member with other values refuses to start. The consumer's core, the audit and control read them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.errors import InvalidInput

Delivery = Literal["exactly_once", "at_least_once", "at_most_once"]
DELIVERIES: tuple[Delivery, ...] = ("exactly_once", "at_least_once", "at_most_once")


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are integer ms; see design section 4 for each rule."""

    gap_ms: int = 1_800_000
    lateness_ms: int = 300_000
    idle_ms: int = 2_100_000
    future_ms: int = 300_000
    repeat_ms: int = 300_000
    max_session_fragments: int = 10_000
    max_session_bytes: int = 900 * 1024
    max_session_span_ms: int = 86_400_000
    delivery: Delivery = "exactly_once"

    def encode(self) -> bytes:
        """The data of the znode `groups/<g>`."""
        return msgspec.json.encode(self)

    def differences(self, other: GroupSettings) -> list[str]:
        """One phrase per field in which `other` differs, `name: mine / other's`."""
        return [
            f"{name}: {getattr(self, name)} / {getattr(other, name)}"
            for name in self.__struct_fields__
            if getattr(self, name) != getattr(other, name)
        ]


def parse_group_settings(raw: bytes) -> GroupSettings:
    """The settings that a group's znode holds. Raises InvalidInput when unreadable."""
    try:
        return msgspec.json.decode(raw, type=GroupSettings)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the group's settings cannot be read: {error}") from None
