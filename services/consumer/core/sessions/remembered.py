"""The ids that a key remembers of its closed sessions: how they are added, and how they age.

Rule 4 of `fold.py`. Each id ages on its own: it is remembered until `repeat_ms` after the last fragment of
the session that it was part of, whatever sessions follow. So a key that has short sessions without a pause
remembers the ids of the last `repeat_ms`, at most `REMEMBERED_IDS`. `covered.py` keeps one such mapping for
each key; the checkpoint stores it.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from types import MappingProxyType

REMEMBERED_IDS = 2_500
"""Newest ids of closed sessions that a key remembers: as many as one request may carry."""
REMEMBERED_ID_BYTES = 16
"""The most that one takes in a checkpoint: 9 bytes for its hash, 7 for an age that no other id has."""

Ids = dict[int, int] | MappingProxyType[int, int]
"""Hash of an id → A at the last fragment of its session; oldest first, and `last_a` never falls."""
NO_IDS: Ids = MappingProxyType({})


def remember(ids: Ids, added: Collection[int], last_a: int) -> Ids:
    """The ids with those of one more session, its last fragment at A = `last_a`; the newest
    `REMEMBERED_IDS` of them.

    `ids` is used up: where it can, this changes it instead of copying it. Cost: one step for each id added.
    """
    if not added:
        return ids
    if len(added) > REMEMBERED_IDS:
        added = list(added)[-REMEMBERED_IDS:]
    if not ids:
        return dict.fromkeys(added, last_a)
    assert isinstance(ids, dict)  # only NO_IDS is not, and that is empty
    for hashed in added:
        ids.pop(hashed, None)  # forgotten, and here again: it is among the newest now
        ids[hashed] = last_a
    _drop_oldest(ids, len(ids) - REMEMBERED_IDS)
    return ids


def forget_old(ids: Ids, a: int, repeat_ms: int) -> None:
    """Drops the ids that a key does not remember any more when A is `a`. Cost: one step for each.

    The newest stays, however old it is: it decides when the whole entry may go (`state.is_droppable`).
    """
    old = 0
    for last_a in ids.values():
        if a <= last_a + repeat_ms:
            break
        old += 1
    _drop_oldest(ids, min(old, len(ids) - 1))


def newest_a(ids: Ids) -> int:
    """`last_a` of the newest id; there must be one."""
    return ids[next(reversed(ids))]


def _drop_oldest(ids: Ids, count: int) -> None:
    if count > 0 and isinstance(ids, dict):
        for hashed in list(islice(ids, count)):
            del ids[hashed]
