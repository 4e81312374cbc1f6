"""What may stand behind the newest checkpoint record of a head."""

from __future__ import annotations

import pytest

from services.consumer.core.commits.checkpoint import is_settled
from shared.model.head import Head

HEAD = Head(epoch=1, seq=1, position=3, safe_offset=3, checkpoint_from=7, newest=9)


@pytest.mark.parametrize(
    ("head", "stable", "end", "is_so"),
    [
        (Head(epoch=0, seq=0, position=0, safe_offset=0), 0, 0, True),
        (Head(epoch=0, seq=0, position=0, safe_offset=0), 0, 1, False),
        (HEAD, 11, 11, True),
        (HEAD, 11, 12, False),
        (HEAD, 9, 10, False),
        (HEAD, 12, 12, False),
    ],
)
def test_behind_the_last_record_of_a_head_stands_nothing_but_its_marker(
    head: Head, stable: int, end: int, *, is_so: bool
) -> None:
    """A new stream has no record; else the commit's marker is the only thing that may follow."""
    assert is_settled(head, stable, end) is is_so
