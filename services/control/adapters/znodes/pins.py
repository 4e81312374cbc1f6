"""Writes a group's pins to ZooKeeper: version checked, with an unknown outcome resolved by reading back.

All readers treat unreadable pins as none, so the next change replaces them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec

from shared.errors import Conflict, ZooKeeperUnavailable
from shared.model.cluster import parse_pins
from shared.model.names import Names
from shared.zookeeper.unreadable import FAULTS
from shared.zookeeper.znodes import Znodes

ATTEMPTS = 5
"""Operators are few: losing this many races in a row is not a coincidence of two of them."""
logger = logging.getLogger(__name__)

Change = Callable[[Mapping[int, str]], dict[int, str]]


class ZooKeeperPins:
    """A `PinStore` on a connected `Znodes`."""

    def __init__(self, znodes: Znodes, names: Names) -> None:
        self._znodes = znodes
        self._names = names

    async def change(self, group: str, change: Change) -> None:
        """Replaces the pins of the (existing) group by what `change` returns for them.

        Raises ZooKeeperUnavailable when the outcome is unknown, Conflict after losing ATTEMPTS races.
        """
        path = self._names.pins(group)
        for _ in range(ATTEMPTS):
            znode = await self._znodes.get(path)
            pins = self._parsed(path, znode.data) if znode is not None else {}
            data = msgspec.json.encode(dict(sorted(change(pins).items())))
            # an unchanged znode wakes no member
            if data == (znode.data if znode is not None else b"{}"):
                return
            try:
                if znode is None:
                    done = await self._znodes.create(path, data)
                else:
                    done = await self._znodes.set(path, data, znode.version)
            except ZooKeeperUnavailable:
                # the write may have happened although its answer was lost
                now = await self._znodes.get(path)
                if now is None or now.data != data:
                    raise
                return
            if done:
                return
        raise Conflict("others keep changing the pins; look again")

    def _parsed(self, path: str, data: bytes) -> dict[int, str]:
        try:
            return parse_pins(data)
        except FAULTS as error:
            logger.warning("unreadable pins replaced", extra={"path": path, "why": str(error)})
            return {}
