"""The settings of a consumer: where it runs, and the group that it belongs to."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace

import msgspec

from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.handover.rules import HandoverLimits
from services.consumer.core.ownership.dampers import OwnershipSettings
from services.consumer.member.effects import Pace
from shared.model.group import DELIVERIES, LEAST, MOST, GroupSettings
from shared.model.names import DEFAULT_GROUP, is_group_name
from shared.service.service_settings import PORTS, ServiceSettings
from shared.service.settings import at_least, between, one_of, setting

_DEFAULT = GroupSettings()
FIXED = "fixed for the group's life: other values are another group"


def _member_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(ServiceSettings):
    """Read from `BATON_…` variables."""

    port: int = setting(8010, "port to listen on", PORTS)
    group: str = setting(DEFAULT_GROUP, "the group: an independent pipeline over the same fragments")
    member: str = setting(_member_id, "id of this member, unique in its group")
    gap_ms: int = setting(
        _DEFAULT.gap_ms,
        f"silence in event time that ends a session; {FIXED}",
        at_least(LEAST["gap_ms"], "without a silence every fragment would be a session"),
    )
    lateness_ms: int = setting(
        _DEFAULT.lateness_ms,
        f"how far the log may be out of event-time order; {FIXED}",
        at_least(0, "a log cannot be more ordered than in order"),
    )
    idle_ms: int | None = setting(
        None,
        f"silence in append time that ends a session; default gap + lateness; {FIXED}",
        at_least(LEAST["idle_ms"], "without a silence every fragment would be a session"),
    )
    future_ms: int = setting(
        _DEFAULT.future_ms,
        f"how far a fragment's time may lie ahead of its append time; {FIXED}",
        at_least(0, "a fragment cannot arrive before it is sent"),
    )
    repeat_ms: int = setting(
        _DEFAULT.repeat_ms,
        f"how long after a session's last fragment its ids are remembered; {FIXED}",
        at_least(0, "0 remembers nothing beyond the session"),
    )
    max_session_fragments: int = setting(
        _DEFAULT.max_session_fragments,
        f"fragments of one session; {FIXED}",
        between(
            LEAST["max_session_fragments"],
            MOST["max_session_fragments"],
            "larger sessions do not fit into a record",
        ),
    )
    max_session_bytes: int = setting(
        _DEFAULT.max_session_bytes,
        f"bytes of one session's fragments; {FIXED}",
        between(
            LEAST["max_session_bytes"], MOST["max_session_bytes"], "a session is one record of at most 2 MB"
        ),
    )
    max_session_span_ms: int = setting(
        _DEFAULT.max_session_span_ms,
        f"event time that one session may span; {FIXED}",
        at_least(LEAST["max_session_span_ms"], "without a span no session could have two fragments"),
    )
    delivery: str = setting(
        _DEFAULT.delivery, f"what a crash may do to a finished session; {FIXED}", one_of(*DELIVERIES)
    )
    max_fragment_bytes: int = setting(
        32 * 1024,
        "largest fragment that producers accept; a session must have room for one",
        between(64, 1_000_000, "must be the producers' value, or sessions lack room for what they accept"),
    )
    session_partitions: int = setting(
        6,
        "partitions of the sessions topic when this member creates it",
        between(1, 4096, "partitions beyond the number of streams stay empty"),
    )
    session_retention_ms: int = setting(
        604_800_000,
        "how long Kafka keeps finished sessions, when this member creates the topic",
        at_least(-1, "-1 keeps them forever; shorter than the pause between two `lake` runs loses sessions"),
    )
    commit_s: float = setting(
        1.0,
        "seconds between the commits of a stream",
        between(0.02, 60, "shorter costs more transactions; longer delays sessions and lengthens replays"),
    )
    commits_per_s: float = setting(
        300.0,
        "commits of all streams of the group together; with many streams each waits longer",
        between(1, 10_000, "more keep the brokers busy with transactions, fewer delay sessions"),
    )
    max_replay_fragments: int = setting(
        100_000,
        "fragments that a new owner replays at most; longer sessions are parked",
        between(100, 10_000_000, "less parks nearly every session, more makes a take-over slow"),
    )
    max_replay_bytes: int = setting(
        100 * 1024 * 1024,
        "bytes that a new owner replays at most",
        at_least(100_000, "less parks nearly every session, more makes a take-over slow"),
    )
    grace_s: float = setting(
        5.0,
        "how long an unowned stream is left to the member that the plan names, before others claim it",
        at_least(0.1, "shorter takes streams from a member that is about to claim them"),
    )
    settle_s: float = setting(
        3.0,
        "a member in a younger ZooKeeper session claims only its own, released-to-it and never owned streams",
        at_least(0, "shorter moves all streams after an outage of ZooKeeper"),
    )
    release_s: float = setting(
        20.0,
        "how long a drain may take before the member leaves without releasing the rest",
        at_least(1, "shorter leaves streams that their next owners must replay"),
    )
    steady_s: float = setting(
        0.5,
        "how long a member must have been in the group before it is given running streams",
        at_least(0, "shorter moves streams to members that may leave at once; doubles for each return"),
    )
    rest_s: float = setting(
        10.0,
        "how long a stream that has come from another member stays, unless its owner drains",
        at_least(0, "shorter makes streams wander when members come and go"),
    )
    moves_at_once: int = setting(
        8,
        "streams of a member that are under way to others at a time, copied or waiting for their turn",
        between(1, 1_000, "more does not end a drain sooner, and delays what stands still"),
    )
    max_handover_bytes: int = setting(
        128 * 1024 * 1024,
        "open sessions of one stream that are handed over live; larger ones are replayed",
        at_least(100_000, "more may block a member while it reads them"),
    )

    @property
    def group_settings(self) -> GroupSettings:
        """The settings in the group's znode."""
        idle_ms = self.gap_ms + self.lateness_ms if self.idle_ms is None else self.idle_ms
        return msgspec.convert(replace(self, idle_ms=idle_ms), GroupSettings, from_attributes=True)

    @property
    def stream_limits(self) -> StreamLimits:
        """What bounds a replay."""
        return msgspec.convert(self, StreamLimits, from_attributes=True)

    @property
    def ownership(self) -> OwnershipSettings:
        """What ownership waits for, and its bounds."""
        return OwnershipSettings(
            grace_ms=int(self.grace_s * 1000),
            settle_ms=int(self.settle_s * 1000),
            steady_ms=int(self.steady_s * 1000),
            rest_ms=int(self.rest_s * 1000),
            moves_at_once=self.moves_at_once,
            move_bytes_at_once=self.max_handover_bytes,
        )

    @property
    def pace(self) -> Pace:
        """How long a drain may take, and how often streams commit."""
        return Pace(drain_s=self.release_s, commits_per_s=self.commits_per_s)

    @property
    def handover_limits(self) -> HandoverLimits:
        """How much is held for handovers."""
        return HandoverLimits(
            max_body_bytes=self.max_handover_bytes, max_held_bytes=4 * self.max_handover_bytes
        )

    def check(self) -> list[str]:
        """Faults of relations between settings."""
        # slots and super() without arguments do not go together
        faults = ServiceSettings.check(self)
        if not is_group_name(self.group):
            faults.append(f"BATON_GROUP={self.group!r}: lower-case letters, digits, `_` and `-`, at most 61")
        if not self.member or "/" in self.member or len(self.member) > 100:
            faults.append(f"BATON_MEMBER={self.member!r}: 1 to 100 characters without `/`")
        if self.max_fragment_bytes > self.max_session_bytes:
            faults.append(
                f"BATON_MAX_FRAGMENT_BYTES={self.max_fragment_bytes} exceeds "
                f"BATON_MAX_SESSION_BYTES={self.max_session_bytes}: a session must have room for a fragment"
            )
        return faults
