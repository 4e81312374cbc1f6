"""Two streams, next to each other, that stay too large to copy until all else has come to rest.

A bundle may hold little in such a run. Both streams get fragments of many keys again and again, so that they
never fit; the others mostly do. Wherever the plan wants the two, nothing may wait for them, and they must get
there: the shares become even while they are still too large.
"""

from __future__ import annotations

import random
from typing import Any

from tests.simulation.world import World

MAX_BODY_BYTES = 3_000
"""More than the sessions of four keys, which `SETTINGS` bounds to 400 bytes each, and what else there is."""
SHARE = 0.1
KEYS = 40
FEED_EVERY_S = 1.4
"""Shorter than the silence that ends a session; longer than the time between commits, so all can be quiet."""


def are_drawn(seed: int) -> bool:
    """Whether there are such streams in the run of a seed; drawn apart, so that other runs stay the same."""
    return random.Random(f"{seed} large streams").random() < SHARE


class LargeStreams:
    """Feeds the two streams between `grow` and `shrink`."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._streams: list[int] = []

    @property
    def are_large(self) -> bool:
        """Whether there are such streams now."""
        return bool(self._streams)

    def grow(self) -> None:
        """From now on two streams are too large to copy."""
        if self._streams:
            return
        first = self._rng.randrange(self._world.streams)
        self._streams = sorted({first, (first + 1) % self._world.streams})
        self._world.trace.note("", "grow too large", self._streams)
        self._feed()

    def shrink(self) -> None:
        """They get no more fragments."""
        self._streams = []

    def _feed(self) -> None:
        world = self._world
        if not self._streams:
            return
        for stream in self._streams:
            for n in range(KEYS):
                fields: dict[str, Any] = {"key": f"large{n}", "data": "x" * 90}
                world.append(stream, fields)
        world.loop.call_later(FEED_EVERY_S, self._feed, context=world.context)
