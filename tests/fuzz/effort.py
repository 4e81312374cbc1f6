"""What a request may cost: CPU time, compared with an ordinary request of the same size.

Ordinary means fragments of 400 bytes in one array. The door may spend three times as long on anything else,
and 10 ms more. Used by `run.py`; other processes disturb the measurement, so a request that takes too long is
sent again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.fuzz.bodies import JSON
from tests.fuzz.face import Face
from tests.fuzz.posts import MAX_DECODED_BYTES, Post

SPARE_S = 0.010
FACTOR = 3
ATTEMPTS = 15
"""The fastest counts."""
_FRAGMENT = (
    b'{"key":"visitor-1","time":1700000000000,"id":"0123456789","data":{"text":"' + b"x" * 320 + b'"}}'
)


@dataclass(frozen=True, slots=True)
class Allowance:
    """The CPU time that a request may take: `fixed_s` and `per_byte_s`."""

    fixed_s: float
    per_byte_s: float

    def for_size(self, size: int) -> float:
        """In seconds, for a request of so many bytes."""
        return self.fixed_s + self.per_byte_s * size


async def cpu_s(face: Face, post: Post) -> float:
    """The CPU time that the door spends on the request."""
    began_s = time.process_time()
    await face.ask(post)
    return time.process_time() - began_s


async def fastest_s(face: Face, post: Post, enough_s: float = 0.0) -> float:
    """The least of a few measurements; ends early when one is at most `enough_s`."""
    fastest = await cpu_s(face, post)
    for _ in range(ATTEMPTS - 1):
        if fastest <= enough_s:
            break
        fastest = min(fastest, await cpu_s(face, post))
    return fastest


async def measure_allowance(face: Face) -> Allowance:
    """The allowance on this machine, from ordinary requests."""
    small_s = await fastest_s(face, _ordinary(1))
    large = _ordinary(2_500)
    large_s = await fastest_s(face, large)
    return Allowance(SPARE_S + FACTOR * small_s, FACTOR * (large_s - small_s) / large.size)


def _ordinary(fragments: int) -> Post:
    body = b"[" + b",".join([_FRAGMENT] * fragments) + b"]"
    assert len(body) <= MAX_DECODED_BYTES
    return Post(
        seed=-1,
        door="usual",
        method="POST",
        path="/fragments",
        query=b"",
        headers=[(b"content-type", JSON)],
        pieces=[body],
        plain=body,
        must_accept=fragments,
        is_gone=False,
        is_keyed=False,
        is_down=False,
        mute=frozenset(),
    )
