"""What is read of a stream, and how a fragment's id is remembered."""

from __future__ import annotations

import hashlib
from typing import Protocol


class Record(Protocol):
    """A record of a fragments topic; aiokafka's ConsumerRecord is one. `timestamp` in ms."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


def hash_id(fragment_id: str) -> int:
    """The 64-bit hash by which a fragment's id is remembered; the same in every process."""
    return int.from_bytes(hashlib.blake2b(fragment_id.encode(), digest_size=8).digest(), "big")
