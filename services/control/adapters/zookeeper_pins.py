"""Writes a group's pins in ZooKeeper: version checked, and an unknown outcome is read back.

Pins that cannot be read count as none for everybody, so the next change replaces them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec

from shared.errors import Conflict, ZooKeeperUnavailable
from shared.model.cluster import parse_pins
from shared.model.names import Names
from shared.zookeeper.znodes import Znodes

ATTEMPTS = 5
"""Operators are few: who loses that often has met something else than another operator."""
logger = logging.getLogger(__name__)

Change = Callable[[Mapping[int, str]], dict[int, str]]


class ZooKeeperPins:
    """A `PinStore` on a connected `Znodes`."""

    def __init__(self, znodes: Znodes, names: Names) -> None:
        self._znodes = znodes
        self._names = names

    async def change(self, group: str, change: Change) -> None:
        """Makes the pins of the (existing) group what `change` says of them.

        Raises ZooKeeperUnavailable, when it is not known whether they are; Conflict, when others change
        them all the time.
        """
        path = self._names.pins(group)
        for _ in range(ATTEMPTS):
            znode = await self._znodes.get(path)
            pins = self._parsed(path, znode.data) if znode is not None else {}
            wanted = msgspec.json.encode(dict(sorted(change(pins).items())))
            if wanted == (znode.data if znode is not None else b"{}"):
                return
            try:
                if znode is None:
                    done = await self._znodes.create(path, wanted)
                else:
                    done = await self._znodes.set(path, wanted, znode.version)
            except ZooKeeperUnavailable:
                now = await self._znodes.get(path)
                if now is None or now.data != wanted:
                    raise
                return
            if done:
                return
        raise Conflict("the pins are being changed by others; look again")

    def _parsed(self, path: str, data: bytes) -> dict[int, str]:
        try:
            return parse_pins(data) if data else {}
        except msgspec.DecodeError as error:
            logger.warning("pins that cannot be read are replaced", extra={"path": path, "why": str(error)})
            return {}
