"""What operators want of a group: its pins, and whether it is paused. Used by `group_mirror.py`."""

from __future__ import annotations

import msgspec

from shared.model.cluster import UNREADABLE_PAUSE, PauseNode, parse_pins
from shared.model.names import Names
from shared.together import both
from shared.zookeeper.unreadable import UnreadableZnodes
from shared.zookeeper.znodes import Watch, Znodes

_pause_of = msgspec.json.Decoder(PauseNode).decode


class Wishes:
    """The pins and the pause as they were last read."""

    def __init__(self, zookeeper: Znodes, names: Names, group: str, unreadable: UnreadableZnodes) -> None:
        self._zookeeper = zookeeper
        self._pins_path, self._pause_path = names.pins(group), names.pause(group)
        self._unreadable = unreadable
        self.forget()

    def forget(self) -> None:
        """Another ZooKeeper session: everything must be read again."""
        self.pins: dict[int, str] = {}
        self.pause: PauseNode | None = None

    async def read(self, within: int, watch: Watch) -> None:
        """Reads both, and leaves a watch on each. Raises ZooKeeperUnavailable.

        Unreadable pins count as none, and an unreadable pause as one: all members read the same data, so all
        do the same.
        """
        pins, pause = await both(
            self._zookeeper.get(self._pins_path, watch=watch, within=within),
            self._zookeeper.get(self._pause_path, watch=watch, within=within),
        )
        data = pins.data if pins is not None else b""
        self.pins = self._unreadable.decode(self._pins_path, data, parse_pins) or {}
        self.pause = None
        if pause is None:
            self._unreadable.forget(self._pause_path)
        else:
            found = self._unreadable.decode(self._pause_path, pause.data, _pause_of)
            self.pause = found or UNREADABLE_PAUSE
