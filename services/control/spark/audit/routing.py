"""A second computation of a key's stream, used only by the audit.

Pure. The protocol's rule: the low 12 bits of the CRC-32 of the key's bytes are its slot, and the stream table
says which stream has the slot. Shares no code with `shared/model/routing.py`, which producers use; a test
compares both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

SLOTS = 4096
_POLYNOMIAL = 0xEDB88320
"""CRC-32 of IEEE 802.3, with its bits reversed."""


class NotAStreamTable(ValueError):
    """The text is not the JSON of a stream table."""


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ _POLYNOMIAL if byte & 1 else byte >> 1
    return byte


_TABLE = tuple(_entry(byte) for byte in range(256))


def slot_of(key: bytes) -> int:
    """The slot, 0 … 4095, of a key's UTF-8 bytes.

    >>> slot_of(b"visitor-1")
    1780
    """
    crc = 0xFFFFFFFF
    for byte in key:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return ~crc % SLOTS


def read_owners(table: str) -> Sequence[int]:
    """The stream of each slot, from the JSON of the stream table. Raises NotAStreamTable.

    A slot that the table gives to no stream or to several gets -1, so all keys in it count as misrouted.
    """
    owners: list[list[int]] = [[] for _ in range(SLOTS)]
    try:
        streams: dict[str, Any] = json.loads(table)["streams"]
        for name, entry in streams.items():
            for low, high in entry["slots"]:
                for slot in range(low, high):
                    owners[slot].append(int(name))
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise NotAStreamTable(f"the stream table cannot be read: {error!r}") from None
    return [of_slot[0] if len(of_slot) == 1 else -1 for of_slot in owners]
