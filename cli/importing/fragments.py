"""Turns a row into the fragment to post, with an id that is the same whenever the line is sent again.

Pure. The id is made of the log's name, the line's number and the line's bytes. A retried request or a
repeated import therefore repeats the same ids, and consumers drop repeats while the session is open and for
`repeat_ms` after (docs/protocol.md). Another log, or one of the same name with other content, gets other ids.
"""

from __future__ import annotations

import hashlib

import msgspec

from cli.importing.formats import Row


class _Wire(msgspec.Struct, omit_defaults=True):
    key: str
    time: int
    id: str
    data: msgspec.Raw
    end: bool = False


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A fragment to send: its line in the log, event time, JSON, stream, and text in the log."""

    line: int
    time_ms: int
    value: bytes
    stream: int = 0
    raw: bytes = b""


def log_digest(name: str) -> str:
    """16 hex digits that identify a log by its name; a gzipped log is the same log.

    >>> log_digest("web.log.gz") == log_digest("web.log")
    True
    """
    # the name only separates logs; it may hold anything, so it is hashed
    return hashlib.blake2b(name.removesuffix(".gz").encode(errors="replace"), digest_size=8).hexdigest()


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
