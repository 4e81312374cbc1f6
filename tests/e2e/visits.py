"""A log of visits without HTTP: what `Fleet.write` appends."""

from __future__ import annotations

import random

import msgspec


class Visits:
    """An endless, seeded log: sessions ended by END, silence, limits; disorder, repeats, poison."""

    def __init__(self, rng: random.Random, keys: int = 120) -> None:
        self._rng = rng
        self._keys = [f"visitor-{n}" for n in range(keys)]
        self._now_ms = 1_700_000_000_000
        self._last: dict[str, bytes] = {}
        self._number = self.count = 0

    def next(self) -> tuple[str, bytes]:
        """Key and value of the next record; `count` counts them."""
        self.count += 1
        rng = self._rng
        key = rng.choice(self._keys)
        kind = rng.random()
        if kind < 0.02 and key in self._last:
            return key, self._last[key]
        if kind < 0.022:
            return key, b"poison"
        self._now_ms += rng.randrange(200)
        self._number += 1
        fragment = {
            "key": key,
            "time": self._now_ms - rng.randrange(3000),
            "id": f"f{self._number}",
            "end": kind > 0.95,
            "data": "x" * rng.choice((5, 50, 500)),
        }
        self._last[key] = msgspec.json.encode(fragment)
        return key, self._last[key]
