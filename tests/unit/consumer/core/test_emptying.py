"""What was put aside is emptied in slices, the first before the next."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from services.consumer.core import large_dict
from services.consumer.core.large_dict import LargeDict, discard, emptying


def test_each_slice_frees_a_bounded_number_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many entries there are, and until none is left."""
    monkeypatch.setattr(large_dict, "FREED_AT_ONCE", 10)
    first, second = (dict.fromkeys(range(size)) for size in (25, 7))
    waiting = deque[dict[Any, Any]]([first, second])

    left = [(len(first), len(second)) for _ in emptying(waiting)]

    assert left == [(15, 7), (5, 7), (0, 7), (0, 0)]
    assert not waiting


@pytest.mark.parametrize(("size", "is_kept"), [(10, False), (11, True)])
def test_only_a_large_dict_is_put_aside(size: int, is_kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only in a process that empties what is put aside."""
    monkeypatch.setattr(large_dict, "FREED_AT_ONCE", 10)
    monkeypatch.setattr(LargeDict, "discarded", None)
    discard(dict.fromkeys(range(size)))
    waiting = deque[dict[Any, Any]]()
    monkeypatch.setattr(LargeDict, "discarded", waiting)

    entries = dict.fromkeys(range(size))
    discard(entries)

    assert [one is entries for one in waiting] == [True] * is_kept
