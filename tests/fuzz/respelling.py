"""The same request in other words, so that a repetition of it costs what the first one did.

A cache of the door could hide the cost of a body that it has seen. So letters, digits and escapes change that
mean nothing to the door, and every item, text and number keeps its length. Used by `run.py`.
"""

from __future__ import annotations

import dataclasses
import itertools

from tests.fuzz.bodies import encoded
from tests.fuzz.posts import Post

_OTHER_LETTERS = bytes.maketrans(b"ghjopqvwx", b"hjopqvwxg")
"""Letters of no word of JSON, no escape, and no member of a fragment."""
_OTHER_WORDS = (
    *((b'"a"', b'"z"'), (rb"\u0041", rb"\u0042"), (rb"\ude00", rb"\ude01"), (b'00Z"', b'01Z"')),
    *((b"[1", b"[2"), (b":1", b":2"), (b",1", b",2")),
)
_MAGIC = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


def respelled(post: Post) -> Post:
    """The request with another body that gets the same answer; unchanged if it is empty, a bomb, or junk."""
    wire = b"".join(post.pieces)
    if post.plain:
        encodings = [value for name, value in post.headers if name == b"content-encoding"]
        plain = _respelled(post.plain)
        return dataclasses.replace(post, plain=plain, pieces=_cut(encoded(plain, *encodings or [b""]), post))
    if post.plain is None and not wire.startswith(_MAGIC):
        return dataclasses.replace(post, pieces=_cut(_respelled(wire), post))
    return post


def _respelled(body: bytes) -> bytes:
    other = body.translate(_OTHER_LETTERS)
    for word, instead in _OTHER_WORDS:
        other = other.replace(word, instead)
    return other if other != body else body + b" "  # nothing but brackets; a space is allowed after them


def _cut(wire: bytes, post: Post) -> list[bytes]:
    """The bytes cut where those of the request are."""
    ends = [0, *itertools.accumulate(map(len, post.pieces[:-1])), len(wire)]
    return [wire[first:end] for first, end in itertools.pairwise(ends)]
