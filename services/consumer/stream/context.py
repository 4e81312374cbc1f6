"""What a member gives to the worker of a stream: its surroundings, and its hold on the stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from services.consumer.core.commits.stream import Stream, StreamLimits
from services.consumer.ports import StreamLog
from services.consumer.stream.warm_clients import WarmClients
from shared.model.group import GroupSettings
from shared.model.head import Head

Ask = Callable[[Head], Awaitable[Stream | None]]
"""Asks the owner before this one for a bundle of exactly that head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupContext:
    """What a worker is given by its member: `now_s`, `wall_ms` are clocks."""

    group: str
    settings: GroupSettings
    limits: StreamLimits
    log: StreamLog
    now_s: Callable[[], float]
    wall_ms: Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A worker's hold on its stream, in the ZooKeeper session of the claim.

    `is_mine`: a fresh read of the claim; `lease_alive`: whether the member may act on it; `commit_s`:
    present pace of commits. `hints`: streams to go on with, if their heads are the stored one; `ask` is
    used at most once per opening; `prepared`: clients that are connected already;
    `is_new`: nobody can have committed in this epoch yet.
    """

    is_mine: Callable[[], Awaitable[bool]]
    lease_alive: Callable[[], bool]
    commit_s: Callable[[], float]
    hints: Sequence[Stream] = ()
    ask: Ask | None = None
    warm: WarmClients | None = None
    is_new: bool = False
