"""Turns a row into the fragment to post, with an id that is the same whenever the line is sent again.

Pure. The id is made of the log, the line's number and the line's bytes. A retried request or a repeated
import therefore repeats the same ids, and consumers drop repeats while the session is open and for
`repeat_ms` after (docs/protocol.md). Another log gets other ids, also for a line that both have: two servers
write logs of one name, with the same health checks in the same lines.
"""

from __future__ import annotations

import hashlib

import msgspec

from cli.importing.parsing.rows import Row

MAX_BATCH_BYTES = 1_000_000
"""The producer's limit of one request (docs/protocol.md), line ends included: no fragment may have more."""
PACKED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")


class _Wire(msgspec.Struct, omit_defaults=True):
    key: str
    time: int
    id: str
    data: msgspec.Raw
    end: bool = False


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A fragment to send: its line in the log, event time, JSON, stream, and text in the log.

    `time_ms` is None if it is in doubt: then it moves no marker.
    """

    line: int
    time_ms: int | None
    value: bytes
    stream: int = 0
    raw: bytes = b""


def log_digest(name: str, origin: str = "") -> str:
    """16 hex digits that identify a log by its name and its origin; a packed log is the same log.

    `origin` is the digest of the content that the log had at its first import (the ledger knows it), and
    empty for a log that cannot be recognized.

    >>> log_digest("web.log.gz", "4f") == log_digest("web.log", "4f") != log_digest("web.log", "a0")
    True
    """
    for suffix in PACKED_SUFFIXES:
        name = name.removesuffix(suffix)
    # the name may hold anything, so it is hashed
    text = f"{name}\0{origin}" if origin else name
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


def fragment_id(digest: str, line: int, raw: bytes) -> str:
    """The id of a line's fragment, at most 64 bytes.

    >>> fragment_id(log_digest("web.log"), 12, b"a line")
    'db59f838008a4986-12-7cfa75baa457'
    """
    # the line's content too: a log of the same name that was rewritten must not count as a repeat
    return f"{digest}-{line}-{hashlib.blake2b(raw, digest_size=6).hexdigest()}"


def encode_fragment(row: Row, identifier: str) -> bytes:
    """The fragment's JSON, on one line."""
    return msgspec.json.encode(
        _Wire(key=row.key, time=row.time_ms, id=identifier, data=msgspec.Raw(row.data), end=row.end)
    )
