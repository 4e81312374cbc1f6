"""Pauses and resumes groups: the znode `groups/<g>/pause` stands while its group is paused."""

from __future__ import annotations

import msgspec

from shared.errors import ZooKeeperUnavailable
from shared.model.cluster import PauseNode
from shared.model.names import Names
from shared.zookeeper.znodes import Znodes


class ZooKeeperPause:
    """A `PauseStore` on a connected `Znodes`."""

    def __init__(self, znodes: Znodes, names: Names) -> None:
        self._znodes = znodes
        self._names = names

    async def pause(self, group: str, pause: PauseNode) -> None:
        """Pauses the group, if it is not paused yet. Raises ZooKeeperUnavailable if that is unknown."""
        try:
            await self._znodes.create(self._names.pause(group), msgspec.json.encode(pause))
        except ZooKeeperUnavailable:
            # the write may have happened although its answer was lost
            if await self._znodes.get(self._names.pause(group)) is None:
                raise

    async def resume(self, group: str) -> None:
        """Ends the group's pause, if it is paused. Raises ZooKeeperUnavailable if that is unknown."""
        try:
            await self._znodes.delete(self._names.pause(group))
        except ZooKeeperUnavailable:
            if await self._znodes.get(self._names.pause(group)) is not None:
                raise
