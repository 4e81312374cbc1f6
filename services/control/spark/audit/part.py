"""The part of a log that an audit judges: some streams, records since a time, a share of the keys.

Pure. Leaving out the rest never falsifies the verdict: each stream and each key is judged on its own, and
records before `since` are treated as if retention had removed them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from services.control.spark.audit.reading import read_timestamp
from shared.errors import InvalidInput

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_CRC_VALUES = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """`streams`: those to judge. `since`: the append time (ms) to start from. `below`: see `has_key`.

    None means no limit.
    """

    streams: tuple[int, ...]
    is_every_stream: bool = True
    since: int | None = None
    below: int | None = None
    words: str = "everything"

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return self.is_every_stream and self.since is None and self.below is None

    def has_key(self, key: bytes) -> bool:
        """Whether the key belongs to the sample: its CRC-32 is under `below`."""
        return self.below is None or zlib.crc32(key) < self.below


def read_part(parameters: Mapping[str, Any], count: int, now_ms: int) -> Part:
    """The part that a run's parameters ask for, of `count` streams. Raises InvalidInput.

    >>> read_part({"streams": "0-2,5", "since": "2h"}, 12, 10_000_000).since
    2800000
    """
    words = []
    streams, since, below = tuple(range(count)), None, None
    if "streams" in parameters:
        streams = _streams(parameters["streams"], count)
        words.append(f"streams {parameters['streams']}")
    if "since" in parameters:
        since = _since(parameters["since"], now_ms)
        at = datetime.fromtimestamp(since / 1000, UTC).isoformat(timespec="milliseconds")
        words.append(f"since {at.replace('+00:00', 'Z')}")
    if "sample" in parameters:
        below = int(float(parameters["sample"]) * _CRC_VALUES)
        words.append(f"a sample of {parameters['sample']} of the keys")
    return Part(
        streams=streams,
        is_every_stream=len(streams) == count,
        since=since,
        below=below,
        words=", ".join(words) or "everything",
    )


def _streams(text: str, count: int) -> tuple[int, ...]:
    chosen: set[int] = set()
    for one in text.split(","):
        low, _, high = one.partition("-")
        first, last = int(low), int(high or low)
        if not first <= last < count:
            raise InvalidInput(f"`streams` has {one!r}, but the streams are 0 … {count - 1}")
        chosen.update(range(first, last + 1))
    return tuple(sorted(chosen))


def _since(text: str, now_ms: int) -> int:
    if match := re.fullmatch(r"([0-9]+)([smhd])", text):
        return max(0, now_ms - int(match[1]) * _UNITS_MS[match[2]])
    try:
        return read_timestamp(text)
    except ValueError as error:
        raise InvalidInput(
            f"`since` is neither a time like 2026-11-23T12:00:00Z nor a span like 2h: {error}"
        ) from None
