"""Makes, names and deletes groups in ZooKeeper, each in one transaction.

A group that another one follows, or that an alias names, must stay. So a transaction that makes a follower or
an alias writes that group's znode (unchanged), and one that deletes a group names the version of its znode
from before it was found to be in no use: of the two, only one succeeds.
"""

from __future__ import annotations

import msgspec

from services.control.core.groups.following import GroupChanged, GroupState, check_deletion
from shared.model.group import GroupSettings
from shared.model.names import Names
from shared.model.start import GroupStart, parse_aliases
from shared.together import both, together
from shared.zookeeper.group_chain import read_start
from shared.zookeeper.znodes import Check, Create, Delete, Operation, Set, Znode, Znodes


class ZooKeeperGroups:
    """A `GroupStore` on a connected `Znodes`."""

    def __init__(self, znodes: Znodes, names: Names) -> None:
        self._znodes = znodes
        self._names = names

    def __repr__(self) -> str:
        return f"<ZooKeeperGroups under {self._names.groups}>"

    async def create(self, group: str, settings: GroupSettings, start: GroupStart, followed: str) -> None:
        """Makes the group. Raises GroupChanged if it exists or the other is gone, ZooKeeperUnavailable."""
        names = self._names
        other = await self._znodes.get(names.group(followed))
        if other is None:
            raise GroupChanged(f"there is no group {followed!r} any more")
        operations: list[Operation] = [
            Set(names.group(followed), other.data, other.version),
            Create(names.group(group), settings.encode()),
            Create(names.start(group), start.encode()),
            *(
                Create(path, b"")
                for path in (names.streams(group), names.claims(group), names.members(group))
            ),
        ]
        if not await self._znodes.transact(operations):
            raise GroupChanged(f"group {group!r} exists, or {followed!r} has just changed: look again")

    async def name(self, alias: str, group: str) -> None:
        """Makes the alias name the group; one that is the group's own name ends.

        Raises GroupChanged, ZooKeeperUnavailable.
        """
        path = self._names.aliases
        await self._znodes.make_path(self._names.groups)
        znode = await self._znodes.get(path)
        aliases = parse_aliases(znode.data if znode is not None else b"") | {alias: group}
        data = msgspec.json.encode({name: named for name, named in aliases.items() if name != named})
        write = Create(path, data) if znode is None else Set(path, data, znode.version)
        there = await self._znodes.get(self._names.group(group))
        if there is None:
            raise GroupChanged(f"there is no group {group!r} any more")
        named = Set(self._names.group(group), there.data, there.version)
        if not await self._znodes.transact([named, write]):
            raise GroupChanged("the groups or aliases have just changed: look again")

    async def delete(self, group: str) -> None:
        """Deletes the group's znodes. Raises GroupInUse, GroupChanged, ZooKeeperUnavailable."""
        names, znodes = self._names, self._znodes
        there, aliases = await both(znodes.get(names.group(group)), znodes.get(names.aliases))
        if there is None:
            raise GroupChanged(f"there is no group {group!r} any more")
        check_deletion(await self._state(group, aliases))
        streams = await znodes.children(names.streams(group))
        single = [names.pins(group), names.pause(group), names.start(group)]
        found = await together(znodes.get(path, awaits_creation=False) for path in single)
        # one that is missing needs no deletion
        parts = [path for path, znode in zip(single, found, strict=True) if znode is not None]
        parts += [f"{names.streams(group)}/{name}" for name in streams]
        parents = (names.members(group), names.claims(group), names.streams(group))
        found = await together(znodes.get(path, awaits_creation=False) for path in parents)
        parts += [path for path, znode in zip(parents, found, strict=True) if znode is not None]
        operations: list[Operation] = [Delete(path) for path in parts]
        # with a member or a claim, the deletion of their parent fails
        operations.append(Delete(names.group(group), there.version))
        if aliases is not None:
            operations.append(Check(names.aliases, aliases.version))
        if not await znodes.transact(operations):
            raise GroupChanged(f"group {group!r} has just changed: look again")

    async def _state(self, group: str, aliases: Znode | None) -> GroupState:
        names, znodes = self._names, self._znodes
        others = await znodes.children(names.groups)
        starts = await together(read_start(znodes, names, other) for other in others)
        return GroupState(
            group=group,
            members=await znodes.children(names.members(group)),
            aliases=parse_aliases(aliases.data if aliases is not None else b""),
            starts={other: start for other, start in zip(others, starts, strict=True) if start is not None},
        )
