"""How deep JSON is nested, counted in the text itself.

Pure. A parser stops where its stack ends, and that differs between versions of Python: 3.11 refuses what 3.13
accepts. A limit that the parser enforces would make a newer producer acknowledge what an older consumer sets
aside. Hence one number for both, which no recursion limit enters. Used by shared/model/fragments.py and the
producer.

A request may consist of brackets alone, so every step works on the whole text at once: fragments of 1 MB
together take at most 10 ms, a loop over their characters 100.
"""

from __future__ import annotations

import operator
from itertools import accumulate

MAX_NESTING = 1_000
"""The deepest nesting of a fragment (docs/protocol.md)."""

SHALLOW_BYTES = 2 * MAX_NESTING
"""Shorter JSON has too few brackets to be too deep. Callers compare first: a call costs 3 % of a fragment."""

_BITS = bytes.maketrans(b"[{]}", b"1100")
_NO_MARK = bytes(byte for byte in range(256) if byte not in b'[{]}"')


def _net_of(word: int) -> int:
    return 2 * word.bit_count() - 8


def _peak_of(word: int) -> int:
    return max(accumulate((1 if word >> bit & 1 else -1 for bit in range(7, -1, -1)), initial=0))


_NET = bytes(_net_of(word) & 0xFF for word in range(256))
"""Eight brackets, a bit each (1 opens), to the levels by which they go deeper in sum: a signed byte."""
_PEAK = bytes(map(_peak_of, range(256)))
"""Eight brackets to the levels by which the deepest of them is deeper than what is before the first."""


def is_too_deep(text: bytes) -> bool:
    """Whether JSON is nested deeper than MAX_NESTING.

    For text that is not JSON the result is some guess, but the same in every process. Costs 60 ns for text of
    up to 2 KB, 0.6 µs per KB for longer text with few brackets, and at most 10 µs per KB.
    """
    if len(text) <= SHALLOW_BYTES or not _may_be_too_deep(text):
        return False
    brackets = _brackets(text)
    if len(brackets) - len(brackets.lstrip(b"[{")) > MAX_NESTING:
        return True  # the usual attack, which is also the shortest text, in a tenth of the time
    words = _words(brackets)
    levels = list(accumulate(memoryview(words.translate(_NET)).cast("b"), initial=0))
    deepest = max(levels)
    # a word may be deeper inside than at its borders
    if MAX_NESTING - 8 < deepest <= MAX_NESTING:
        deepest = max(map(operator.add, levels, words.translate(_PEAK)))
    return deepest > MAX_NESTING


def _may_be_too_deep(text: bytes) -> bool:
    # if the deepest place is in the first half, so are the brackets that open it; else those that close it
    half = len(text) // 2
    return (
        text.count(b"{", 0, half) + text.count(b"[", 0, half) > MAX_NESTING
        or text.count(b"}", half) + text.count(b"]", half) > MAX_NESTING
    )


def _brackets(text: bytes) -> bytes:
    """The brackets outside of strings.

    >>> _brackets(b'{"a":[{"b":"]]]"},[]]}')
    b'{[{}[]]}'
    """
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = text.translate(None, _NO_MARK)
    # removes strings without brackets, and joins adjacent strings: neither moves a bracket out of a string
    marks = marks.replace(b'""', b"")
    return b"".join(marks.split(b'"')[::2])


def _words(brackets: bytes) -> bytes:
    """Eight brackets in each byte: 1 opens, 0 closes; padded with 0.

    >>> [f"{word:08b}" for word in _words(b"{[{}[]]}")]
    ['11101000']
    """
    bits = brackets.translate(_BITS) + b"0" * (-len(brackets) % 8)
    return int(bits or b"0", 2).to_bytes(len(bits) // 8, "big")
