"""The producer's answers: which fragments it accepted, which it rejected, where its markers are.

`cli/http/client.py` decodes them; everything that sends fragments uses them.
"""

from __future__ import annotations

import msgspec

from shared.errors import InvalidInput


class RequestTooLarge(InvalidInput):
    """The producer rejects a request of this size."""


class Rejected(msgspec.Struct, frozen=True):
    """One rejected fragment: its index in the request, the reason (one word), the detail (a sentence)."""

    index: int
    reason: str
    detail: str = ""


class Receipt(msgspec.Struct, frozen=True):
    """The outcome of a request: how many fragments were accepted, and the rejected ones."""

    accepted: int = 0
    rejected: list[Rejected] = []


class MarkerPosition(msgspec.Struct, frozen=True):
    """The stream and offset of a marker."""

    stream: int
    offset: int


class Markers(msgspec.Struct, frozen=True):
    """The markers of one request, one per stream."""

    markers: list[MarkerPosition]
