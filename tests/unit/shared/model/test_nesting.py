"""How deep a text is nested, against a count of its characters one by one."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.model.nesting import MAX_NESTING, is_too_deep

LEAVES = (
    *(b"1", b'""', b'"]"', b'"[{"', rb'"\""', rb'"\\"', rb'"]\\\"["', b"[]", b"{}"),
    *(b'[[],"["]', b'{"]":[1]}'),
)


def counted(text: bytes) -> int:
    """The depth of JSON, a character at a time."""
    depth = deepest = 0
    is_text = is_escaped = False
    for char in text.decode():
        if is_text:
            is_text = is_escaped or char != '"'
            is_escaped = char == "\\" and not is_escaped
        elif char == '"':
            is_text = True
        else:
            depth += (char in "[{") - (char in "]}")
            deepest = max(deepest, depth)
    return deepest


@settings(max_examples=100, deadline=None)
@given(
    depth=st.integers(MAX_NESTING - 12, MAX_NESTING + 12),
    levels=st.lists(st.sampled_from([b"[", b'{"a":', b'{"]":']), min_size=1, max_size=9),
    before=st.lists(st.sampled_from(LEAVES), max_size=5),
    after=st.lists(st.sampled_from(LEAVES), max_size=5),
    padding=st.sampled_from([b"", b'"' + b"]" * 900 + b'",', b"[]," * 900, b'"' + b"x" * 9_000 + b'",']),
)
@example(depth=MAX_NESTING + 1, levels=[b"["], before=[], after=[], padding=b"")
@example(depth=MAX_NESTING, levels=[b"["], before=[], after=[], padding=b"")
def test_depth_is_counted_outside_of_strings(
    depth: int, levels: list[bytes], before: list[bytes], after: list[bytes], padding: bytes
) -> None:
    """Whatever the strings hold, and wherever in the text its deepest place is."""
    chain = [levels[n % len(levels)] for n in range(depth - 1)]
    closing = b"".join(b"]" if level == b"[" else b"}" for level in reversed(chain))
    deep = b"".join(chain) + b"1" + closing
    text = b"[" + padding + b",".join([*before, deep, *after]) + b"]"

    assert is_too_deep(text) == (counted(text) > MAX_NESTING)


@pytest.mark.parametrize("text", [b"", b'"', b"[" * 100, b"]" * 5_000, b'["' + b"[" * 5_000, b"\\" * 5_000])
def test_other_text_is_never_an_error(text: bytes) -> None:
    """It is rejected for not being JSON."""
    assert not is_too_deep(text)
