"""Long work as a generator that yields between its slices, so that whoever runs it can let others run.

Loading a checkpoint and taking or opening a copy of a stream visit everything that is open: seconds of work
for hundreds of thousands of sessions. A slice takes about 5 ms. `stream/slices.py` runs them on the event
loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain, islice
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that yields after each slice, and returns its result."""
SLICE = 1_000
"""How many entries one slice visits, at 1 to 6 µs each. Few, because one of them may make a dictionary grow,
which nothing can divide: one of 350,000 keys takes 15 ms."""

SLICE_BYTES = 1024 * 1024
"""How much is encoded, decoded or hashed in one slice: at most 3 ms."""


def at_once(steps: Steps[T]) -> T:
    """The result of the work, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def while_true(holds: Callable[[], bool], steps: Steps[T]) -> Steps[T | None]:
    """The result of the work; None as soon as `holds()` is false between two slices."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        yield
        if not holds():
            steps.close()
            return None


def sliced(items: Iterable[T]) -> Iterator[list[T]]:
    """The items in lists of at most `SLICE`."""
    remaining = iter(items)
    while part := list(islice(remaining, SLICE)):
        yield part


def sorting(items: list[T], key: Callable[[T], int]) -> Steps[Iterable[T]]:
    """The items in order of their keys, and of their places where keys are equal; it empties the list.

    Items whose keys are close to each other go into the same bucket, and each bucket is sorted by itself: one
    sort of all would be one long step. An item whose key rises between two slices may stand anywhere behind
    its old place. Makes no second list of all, because a garbage collection looks at each entry of a
    new list: 15 ms for 400,000.
    """
    if len(items) <= SLICE:
        return sorted(items, key=key)
    yield
    low = high = key(items[0])
    for part in sliced(items):
        keys = [*map(key, part)]
        low, high = min(low, *keys), max(high, *keys)
        yield
    buckets: list[list[T]] = [[] for _ in range(4 * len(items) // SLICE)]
    for part in sliced(items):
        for item in part:
            number = (key(item) - low) * len(buckets) // (high - low + 1)
            buckets[min(number, len(buckets) - 1)].append(item)
        yield
    items.clear()
    yield
    for bucket in buckets:
        bucket.sort(key=key)
        yield
    return chain.from_iterable(buckets)
