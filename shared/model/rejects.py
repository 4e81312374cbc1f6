"""A reject: a rejected fragment, as the topic `fragments.rejected` keeps it.

Pure. The record's value is what was posted, cut to `MAX_KEPT_BYTES`; its headers hold everything else, so
that any Kafka tool shows both. Producers write rejects (`services/producer/kafka/rejects.py`), `baton
rejected` reads them. A replay inserts an id, which counts towards no limit: otherwise a fragment of the
largest size could not be sent again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MAX_KEPT_BYTES = 32 * 1024
"""The default of `BATON_MAX_FRAGMENT_BYTES`: by default, only what was rejected for its size is longer, and
that would be rejected again. With a higher limit, longer rejects are cut as well and cannot be replayed."""
MAX_DETAIL_BYTES = 500
"""Limits the detail, which may quote what was posted."""
UNREADABLE = "unreadable"
"""The reason of a whole request that is not JSON; the other reasons are those of FragmentRejected."""
UNKNOWN = "unknown"
"""The reason of a record that another program wrote."""

FRAGMENT_REASONS = ("malformed", "invalid", "encoding", "nesting", "key", "id", "time", "size")
"""The reasons in a producer's answer."""
REASONS = (*FRAGMENT_REASONS, UNREADABLE, UNKNOWN)
"""Every reason that a reject can have."""

_REASON = re.compile(r"[a-z][a-z0-9_-]{0,40}")
# what `with_id` (cli/rejects/replay.py) puts behind the opening brace
_REPLAYED = re.compile(rb'(?:\xef\xbb\xbf)?[ \t\r\n]*\{("id":"rejected/\d{1,10}/\d{1,19}",?)')

Headers = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """What was rejected, why, and its index in the request (from 0); `size` is the posted size.

    `len(value) <= size`, and less if the value was cut.
    """

    value: bytes
    reason: str
    detail: str
    size: int
    index: int

    @property
    def is_cut(self) -> bool:
        """Whether only the beginning was kept."""
        return len(self.value) < self.size


def is_reason(text: str) -> bool:
    """Whether this is a valid reason: a lower-case word."""
    return _REASON.fullmatch(text) is not None


def inserted_bytes(posted: bytes) -> int:
    """The length of the id that a replay has inserted into this text; 0 if there is none.

    >>> inserted_bytes(b'{"id":"rejected/0/7","key":"a"}'), inserted_bytes(b'{"key":"a"}')
    (20, 0)
    """
    replayed = _REPLAYED.match(posted)
    return len(replayed[1]) if replayed else 0


def kept_part(posted: bytes) -> bytes:
    """The part of what was posted that the topic keeps."""
    return posted[: MAX_KEPT_BYTES + inserted_bytes(posted)]


def headers_of(reason: str, detail: str, size: int, index: int, *, is_cut: bool) -> Headers:
    """The headers of a reject's record.

    >>> headers_of("invalid", "no key", 2, 3, is_cut=False)
    [('reason', b'invalid'), ('detail', b'no key'), ('size', b'2'), ('index', b'3')]
    """
    headers = [
        ("reason", reason.encode()),
        # characters first, so that a huge detail is not encoded as a whole, then bytes
        ("detail", detail[:MAX_DETAIL_BYTES].encode(errors="replace")[:MAX_DETAIL_BYTES]),
        ("size", b"%d" % size),
        ("index", b"%d" % index),
    ]
    if is_cut:
        headers.append(("cut", b"1"))
    return headers


def parse_reject(value: bytes | None, headers: Iterable[tuple[str, bytes]]) -> Reject:
    """The reject in a record; the reason is `unknown` if another program wrote it."""
    value = value or b""
    found = dict(headers)
    reason = found.get("reason", b"").decode(errors="replace")
    return Reject(
        value=value,
        reason=reason if is_reason(reason) else UNKNOWN,
        detail=found.get("detail", b"").decode(errors="replace"),
        # consistent with the value, whatever the headers of other programs say
        size=max(_number(found.get("size", b"")), len(value) + 1) if "cut" in found else len(value),
        index=_number(found.get("index", b"")),
    )


def _number(text: bytes) -> int:
    # 18 digits fit into 64 bits, and Python refuses to convert thousands
    return int(text) if text.isdigit() and len(text) <= 18 else 0
