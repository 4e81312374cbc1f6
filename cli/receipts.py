"""What a producer answers: which fragments it took, which it refused, where its markers stand.

Read by `cli/client.py`, used by everything that sends fragments.
"""

from __future__ import annotations

import msgspec

from shared.errors import InvalidInput


class RequestTooLarge(InvalidInput):
    """The producer refuses a request of this size."""


class Rejected(msgspec.Struct, frozen=True):
    """One refused fragment: its place in the request, a word to count by, a sentence."""

    index: int
    reason: str
    detail: str = ""


class Receipt(msgspec.Struct, frozen=True):
    """What became of a request's fragments."""

    accepted: int = 0
    rejected: list[Rejected] = []


class MarkerPosition(msgspec.Struct, frozen=True):
    """Where a marker stands: its stream and offset."""

    stream: int
    offset: int


class Markers(msgspec.Struct, frozen=True):
    """The markers of one request, one per stream."""

    markers: list[MarkerPosition]
