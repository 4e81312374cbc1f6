"""Changes the ACLs of all znodes of a Baton; `baton zookeeper` and a secured local stack do it."""

from __future__ import annotations

from collections import Counter

from shared.together import together
from shared.zookeeper.connection import ZooKeeper

AT_ONCE = 100
"""Znodes that are changed at the same time."""


async def change_acls(client: ZooKeeper, root: str, *, is_locked: bool) -> Counter[bool]:
    """Changes the ACLs of the znode and of all below it; counts those that were changed, and those not.

    What is created meanwhile is not seen. Raises ZooKeeperUnavailable; then some are changed.
    """
    counts: Counter[bool] = Counter()
    level = [root]
    while level:
        below: list[str] = []
        for start in range(0, len(level), AT_ONCE):
            some = level[start : start + AT_ONCE]
            counts.update(await together(client.set_acl(path, is_locked=is_locked) for path in some))
            found = await together(client.children(path) for path in some)
            for path, children in zip(some, found, strict=True):
                below += (f"{path}/{child}" for child in children)
        level = below
    return counts
