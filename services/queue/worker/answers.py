"""What all answers with items may hold in memory, so that many clients with large items cannot exhaust it.

Bytes count from when an item is read until its answer is sent. An answer that finds no room for one more item
gets fewer; one that finds none for its first is refused, and what it has leased goes back without an attempt.
Used by the route of leases and by handing_out.py.
"""

from __future__ import annotations

from typing import Final

from shared.service.inflight import Overloaded

MAX_BYTES: Final = 64 * 1024 * 1024
COPIES: Final = 2
"""Of each item there are two at a time: as it was read, and in the JSON."""


class Answers:
    """What all answers of a worker hold: `bytes` of at most `max_bytes`, except that one item always fits."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.bytes = 0
        self.max_bytes = max_bytes

    def __repr__(self) -> str:
        return f"<Answers: {self.bytes} of {self.max_bytes} bytes>"


class AnswerShare:
    """What one answer holds, until `release`; after that it holds nothing, and nothing fits any more."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._bytes = 0
        self._is_released = False

    def check(self) -> None:
        """Raises Overloaded if there is no room at all: then nothing should be leased."""
        if self._answers.bytes >= self._answers.max_bytes:
            raise Overloaded("too many answers are being sent")

    def add(self, size: int) -> bool:
        """Counts an item of this size; False if there is no room for it."""
        size *= COPIES
        answers = self._answers
        if self._is_released or (answers.bytes and answers.bytes + size > answers.max_bytes):
            return False
        self._bytes += size
        answers.bytes += size
        return True

    def release(self) -> None:
        """The answer is sent, or will never be."""
        self._answers.bytes -= self._bytes
        self._bytes, self._is_released = 0, True
