"""What a request may cost: CPU time, compared with an ordinary request of the same size.

Ordinary means fragments of 400 bytes in one array, the fastest of a few. The door may spend three times as
long on anything else, and the time in which Python makes `SPARE_OBJECTS` more. The first time counts, in
which nothing is cached yet. Other processes disturb the measurement, so a request that takes too long is
repeated a few times, each time with another body of the same shape (respelling.py): a cache that knows a
body cannot hide its cost. Used by `run.py`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.fuzz.bodies import JSON, MAX_DECODED_BYTES
from tests.fuzz.face import Face
from tests.fuzz.posts import Post
from tests.fuzz.respelling import respelled

SPARE_OBJECTS = 200_000
"""About twice what thousands of tiny items cost, each refused with its reason."""
FACTOR = 3
REPETITIONS = 3
"""Of a request that takes too long."""
ATTEMPTS = 15
"""For an ordinary request, whose fastest time is the measure."""
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


async def measure_allowance(face: Face) -> Allowance:
    """The allowance on this machine, from ordinary requests."""
    small_s = await _fastest_s(face, _ordinary(1))
    large = _ordinary(2_500)
    large_s = await _fastest_s(face, large)
    return Allowance(_spare_s() + FACTOR * small_s, FACTOR * (large_s - small_s) / large.size)


def _spare_s() -> float:
    times_s = []
    for _ in range(ATTEMPTS):
        began_s = time.process_time()
        for index in range(SPARE_OBJECTS):
            {"index": str(index)}
        times_s.append(time.process_time() - began_s)
    return min(times_s)


async def confirmed_s(face: Face, post: Post, first_s: float, allowed_s: float) -> float:
    """The CPU time of a request whose first one was `first_s`: the least of several if that was too long."""
    least_s = first_s
    for _ in range(REPETITIONS):
        if least_s <= allowed_s:
            break
        post = respelled(post)
        least_s = min(least_s, await _cpu_s(face, post))
    return least_s


async def _cpu_s(face: Face, post: Post) -> float:
    began_s = time.process_time()
    await face.ask(post)
    return time.process_time() - began_s


async def _fastest_s(face: Face, post: Post) -> float:
    return min([await _cpu_s(face, post) for _ in range(ATTEMPTS)])


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
