"""What may follow the newest checkpoint record of a head."""

from __future__ import annotations

import pytest

from services.consumer.core.commits.checkpoint import check_reaches, is_settled, new_stream
from shared.errors import InvalidInput
from shared.model.head import Head

HEAD = Head(epoch=1, seq=1, position=3, safe_offset=3, checkpoint_from=7, newest=9)


@pytest.mark.parametrize(
    ("head", "stable", "end", "is_so"),
    [
        (Head(epoch=0, seq=0, position=0, safe_offset=0), 0, 0, True),
        (Head(epoch=0, seq=0, position=0, safe_offset=0), 0, 1, False),
        (Head(epoch=1, seq=1, position=1, safe_offset=1, checkpoint_from=0, newest=0), 2, 2, True),
        (HEAD, 11, 11, True),
        (HEAD, 11, 12, False),
        (HEAD, 9, 10, False),
        (HEAD, 12, 12, False),
        (new_stream(12).head, 12, 12, True),
        (new_stream(12).head, 12, 13, False),
    ],
)
def test_only_the_commits_marker_may_follow_the_newest_record(
    head: Head, stable: int, end: int, *, is_so: bool
) -> None:
    """A new stream has no record at all. After any other record, something left undecided would follow."""
    assert is_settled(head, stable, end) is is_so


def test_a_partition_that_ends_below_the_newest_record_was_lost() -> None:
    """The topic was created anew: the record will never come. An undecided end is none of this."""
    check_reaches(HEAD, 10)
    check_reaches(new_stream().head, 0)
    with pytest.raises(InvalidInput, match="the checkpoints end at 9"):
        check_reaches(HEAD, 9)
