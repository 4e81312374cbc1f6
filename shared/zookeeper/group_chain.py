"""Reads whom a group follows, whom that one follows, and so on; a start is fixed for its group's life."""

from __future__ import annotations

from shared.errors import InvalidInput
from shared.model.names import Names
from shared.model.start import MAX_CHAIN, GroupStart, parse_start
from shared.zookeeper.znodes import Znodes


async def read_start(zookeeper: Znodes, names: Names, group: str) -> GroupStart | None:
    """The group's start, None if it has none: it begins where the log does.

    Raises ZooKeeperUnavailable, InvalidInput.
    """
    znode = await zookeeper.get(names.start(group), awaits_creation=False)
    return parse_start(znode.data) if znode is not None else None


async def read_chain(zookeeper: Znodes, names: Names, group: str) -> list[GroupStart]:
    """The group's start, that of the group it follows, and so on; empty for a group without a start.

    Raises ZooKeeperUnavailable, InvalidInput.
    """
    chain: list[GroupStart] = []
    following: str | None = group
    while following is not None:
        start = await read_start(zookeeper, names, following)
        if start is None:
            break
        chain.append(start)
        following = start.follows
        if len(chain) > MAX_CHAIN:
            raise InvalidInput(f"group {group!r} follows more than {MAX_CHAIN} others")
    return chain
