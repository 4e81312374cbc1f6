"""What a member gives to the worker of a stream: the group's context, and the stream that it has claimed."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.ports import StreamLog
from services.consumer.stream.pause import GroupPause
from services.consumer.stream.warm_clients import WarmClients
from shared.model.group import GroupSettings
from shared.model.head import Head
from shared.model.start import GroupStart

Ask = Callable[[Head], Awaitable[Stream | None]]
"""Asks the owner before this one for a bundle of exactly that head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupContext:
    """What all workers of a member share. `now_s`: monotonic seconds; `wall_ms`: the wall clock; `uniform`: a
    random number between 0 and 1, which spreads retries; `pause`: whether an operator has paused the group;
    `chain`: the group's start, that of the group it follows, and so on.
    """

    group: str
    settings: GroupSettings
    limits: StreamLimits
    log: StreamLog
    now_s: Callable[[], float]
    wall_ms: Callable[[], int]
    uniform: Callable[[], float] = random.random
    pause: GroupPause = field(default_factory=GroupPause)
    chain: Sequence[GroupStart] = ()

    @property
    def start(self) -> GroupStart | None:
        """The group's own start, None if it begins where the log does."""
        return self.chain[0] if self.chain else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A stream that the member has claimed, and what its worker may use.

    `is_mine`: reads the claim afresh; `lease_alive`: whether the member may act, in the ZooKeeper session of
    the claim; `commit_s`: seconds between commits, at the group's pace. For the first opening only:
    `hints`, streams to go on with if their heads are the stored one; `ask`, for a bundle of the owner before;
    `warm`, clients that are already connected; `is_new`: nobody can have committed in this epoch yet.
    """

    is_mine: Callable[[], Awaitable[bool]]
    lease_alive: Callable[[], bool]
    commit_s: float
    hints: Sequence[Stream] = ()
    ask: Ask | None = None
    warm: WarmClients | None = None
    is_new: bool = False
