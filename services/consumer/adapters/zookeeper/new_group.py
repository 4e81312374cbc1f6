"""Creates a group's znodes, or checks that its settings are the same: they are fixed for a group's life."""

from __future__ import annotations

from shared.errors import InvalidInput, ZooKeeperUnavailable
from shared.model.group import GroupSettings, parse_group_settings
from shared.model.names import Names
from shared.model.start import GroupStart
from shared.zookeeper.unreadable import UnreadableZnodes
from shared.zookeeper.znodes import Create, Znodes


async def create_group(
    zookeeper: Znodes,
    names: Names,
    group: str,
    settings: GroupSettings,
    start: GroupStart | None = None,
) -> GroupSettings:
    """Creates what is missing, at every member's start; returns the group's settings.

    Control makes the groups that follow others, with the settings that an operator asked for: there only what
    differs from the defaults must be the same. `start`: the group's, as this member knows it from before
    ZooKeeper was reset. Raises InvalidInput if the group has other settings;
    ZooKeeperUnavailable also if they are unreadable.
    """
    path = names.group(group)
    await zookeeper.make_path(names.groups)
    if start is not None:
        # at once: a member that finds the group without its start begins where the logs do
        both = Create(path, settings.encode()), Create(names.start(group), start.encode())
        await zookeeper.transact(both)
    await zookeeper.create(path, settings.encode())
    znode = await zookeeper.get(path)
    if znode is None:
        raise ZooKeeperUnavailable("the group's znode vanished while it was being created")
    found = UnreadableZnodes().decode(path, znode.data, parse_group_settings)
    if found is None:
        raise ZooKeeperUnavailable(f"the group's settings at {path} are unreadable")
    if start is not None:
        await zookeeper.create(names.start(group), start.encode())
    differences = settings.differences(found)
    if differences and await zookeeper.get(names.start(group), awaits_creation=False) is not None:
        differences = settings.differences(found, but_defaults=True)
    if differences:
        raise InvalidInput(
            f"group {group!r} has other settings (here / there): {', '.join(differences)}; "
            "settings are fixed for a group's life; for other values, use another group"
        )
    # members last: nobody can join an incomplete group, and a member that cannot join completes it
    for part in (names.streams(group), names.claims(group), names.members(group)):
        await zookeeper.create(part)
    return found
