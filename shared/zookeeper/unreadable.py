"""Znodes whose data cannot be decoded: each is logged once and counted, and its reader goes on without it.

Anyone who can write to ZooKeeper can damage a znode, and an exception would end every process that reads it.
What a reader assumes instead depends on the znode (docs/protocol.md, "Unreadable znodes"). Used by consumer,
control and producer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import msgspec

from shared.errors import InvalidInput

T = TypeVar("T")
FAULTS = (
    msgspec.DecodeError,
    UnicodeDecodeError,  # msgspec passes it on
    RecursionError,  # nested too deeply, also inside a field that is ignored
    InvalidInput,
)
"""Every exception of a decoder."""
logger = logging.getLogger(__name__)


class UnreadableZnodes:
    """The znodes that could not be decoded when they were last read; `len` is their number."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"<UnreadableZnodes {sorted(self._data)}>"

    def __len__(self) -> int:
        return len(self._data)

    def decode(self, path: str, data: bytes, decoder: Callable[[bytes], T]) -> T | None:
        """The decoded data of the znode, or None if it is unreadable."""
        try:
            value = decoder(data)
        except FAULTS as error:
            # every reading finds it again: log it only when it has changed
            if self._data.get(path) != data:
                self._data[path] = data
                logger.warning("znode unreadable", extra={"path": path, "why": str(error)})
            return None
        self.forget(path)
        return value

    def forget(self, path: str) -> None:
        """The znode is gone, or is no longer of interest."""
        self._data.pop(path, None)

    def clear(self) -> None:
        """Forgets all of them."""
        self._data.clear()
