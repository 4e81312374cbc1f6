"""The batches of the state: each holds the sums of the sessions that some versions of `sessions` added.

Pure. A part of the state (its sums per quarter of an hour, per key, …) is a chain of batches that touch: the
next begins after the version at which one ends. Summing the newest ones into one keeps chains short. That
happens by levels, as in a log-structured merge tree: each row is rewritten once per level, not in every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

FAN = 8
"""How many batches of a level become one of the next."""
BEGINNING = -1


class Batch(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The sums of what the versions after `since`, up to `version`, have added.

    `commit`: `commit_id` of the version. `lineage`: names the run that counted everything.
    """

    since: int
    version: int
    level: int
    lineage: str
    table_id: str
    commit: str


def is_chain(batches: Sequence[Batch]) -> bool:
    """Whether sorted batches count each version once, from the first one on, of one table."""
    ends = [BEGINNING, *(batch.version for batch in batches)]
    return [batch.since for batch in batches] == ends[:-1] and len({b.lineage for b in batches}) == 1


def to_merge(batches: Sequence[Batch]) -> tuple[Batch, ...]:
    """The newest batches of a chain that should become one, or none.

    >>> def batch(version, level):
    ...     return Batch(since=version - 1, version=version, level=level, lineage="", table_id="", commit="")
    >>> [one.version for one in to_merge([batch(0, 1), *(batch(n, 0) for n in range(1, 9))])]
    [1, 2, 3, 4, 5, 6, 7, 8]
    >>> to_merge([batch(0, 1), *(batch(n, 0) for n in range(1, 8))])
    ()
    """
    merged: tuple[Batch, ...] = ()
    level = 0
    while True:
        newest = _trailing(batches, level)
        if len(newest) < FAN:
            return merged
        merged = newest
        level += 1


def merged_level(batches: Iterable[Batch]) -> int:
    """The level of their sum."""
    return max(batch.level for batch in batches) + 1


def _trailing(batches: Sequence[Batch], level: int) -> tuple[Batch, ...]:
    """The newest batches up to the level; those below it count as one, as the merge below makes them."""
    newest = []
    for batch in reversed(batches):
        if batch.level > level:
            break
        newest.append(batch)
    at_level = [batch for batch in newest if batch.level == level]
    below = len(newest) > len(at_level)
    return tuple(reversed(newest)) if len(at_level) + below >= FAN else ()
