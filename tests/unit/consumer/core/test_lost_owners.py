"""Whose end a member reports when it claims a stream."""

from __future__ import annotations

import pytest

from services.consumer.core.ownership.lost_owners import AGAIN_MS, LostOwners
from shared.model.cluster import StreamNode, View

HELD = StreamNode(epoch=1, owner="b")


def view_of(*nodes: StreamNode) -> View:
    return View(count=len(nodes), nodes=dict(enumerate(nodes)))


@pytest.mark.parametrize(
    ("node", "reported"),
    [
        (HELD, "b"),
        (StreamNode(epoch=1, owner="me"), "me"),
        (StreamNode(), None),
        (StreamNode(epoch=1, owner="b", seq=3), None),
        (StreamNode(epoch=1, owner="b", target="me"), None),
        (StreamNode(epoch=1, owner="b", seq=3, target="me"), None),
    ],
)
def test_an_owner_that_has_not_released_its_stream_has_ended(node: StreamNode, reported: str | None) -> None:
    """An earlier process of this member, too; a stream that nobody owned says nothing."""
    assert LostOwners("me").note(0, view_of(node), 0) == reported


def test_the_end_of_an_owner_is_reported_once_for_all_its_streams() -> None:
    """Until it has had the time to come back and end again; each claim extends that time."""
    lost, view = LostOwners("me"), view_of(HELD, HELD, HELD, StreamNode(epoch=1, owner="c"))

    found = [
        lost.note(stream, view, now_ms)
        for stream, now_ms in (
            (0, 5),
            (1, 5 + AGAIN_MS),
            (3, 6),
            (2, 5 + 2 * AGAIN_MS),
            (0, 6 + 3 * AGAIN_MS),
        )
    ]

    assert found == ["b", None, "c", None, "b"]


def test_a_process_knows_its_own_end() -> None:
    """A stream that it claims again is one that it has lost itself, with its ZooKeeper session."""
    lost, view = LostOwners("me"), view_of(StreamNode(epoch=1, owner="me"), StreamNode(epoch=1, owner="me"))

    found = [
        lost.note(stream, view, now_ms) for stream, now_ms in ((0, 0), (0, 2 * AGAIN_MS), (1, 4 * AGAIN_MS))
    ]

    assert found == ["me", None, "me"]
