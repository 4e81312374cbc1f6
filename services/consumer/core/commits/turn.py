"""What a turn of a stream returns: effects, in order, and how long to wait. And the limits that it keeps.

Pure. `Stream.turn` (`stream.py`) makes it, the worker (stream/worker.py) performs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from services.consumer.core.commits.commit import Commit
from services.consumer.core.sessions.record import Record

IDLE_S = 5.0
"""How long to wait for records when nothing is due."""
EMPTY_S = 30.0
"""The same while no session is open either, so that nothing comes due without a record. Each time costs
0.1 ms: at `IDLE_S` that was a third of what an idle member cost."""
RENEW_S = 86_400.0
"""Kafka forgets committed offsets after 7 idle days; owners renew theirs daily."""

Start = Literal["as_stored", "cut", "rewind"]


def rest_s(*, is_waiting: bool) -> float:
    """How long to wait for records when no more work is at hand; `is_waiting`: something may come due."""
    return IDLE_S if is_waiting else EMPTY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """`commit_s`: seconds between commits; the others bound what a new owner has to replay."""

    commit_s: float = 1.0
    max_replay_fragments: int = 100_000
    max_replay_bytes: int = 100 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Tick:
    """Append a tick to the stream: the broker's time on it shows how late it is."""


Effect = Commit | Tick


@dataclass(frozen=True, slots=True)
class Turn:
    """What must happen now, in this order; then wait up to `wait_s` seconds for more records.

    `left`: records that are not folded yet, because the commit has no room for what they close. The next turn
    must begin with them.
    """

    effects: tuple[Effect, ...]
    wait_s: float
    left: Sequence[Record] = ()
