"""Releases that donors have announced, so that a member can claim without reading what they change.

With a delta comes what the donor is about to write (docs/handover.md). When the stream's claim then changes,
the member assumes that this was the release: that saves two round trips of the pause. It is only a guess, so
the claim names the version that it expects, and what the node really holds is read beside it
(`coordinator.py`). Used by `group_mirror.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from shared.model.cluster import StreamNode

EXPECT_S = 3.0
"""A release follows its delta within milliseconds; a later change of the claim has another cause."""


class ExpectedReleases:
    """The announced releases by stream, and those that a changed claim suggests have happened."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._expected: dict[int, tuple[StreamNode, int, float]] = {}
        self._guessed: set[int] = set()
        self._has_news = False

    def __repr__(self) -> str:
        return f"<ExpectedReleases {sorted(self._expected)}, guessed {sorted(self._guessed)}>"

    def expect(self, stream: int, node: StreamNode, version: int) -> None:
        """Announces: when the stream's claim changes soon, its node will be this, in this version."""
        self._expected[stream] = node, version, self._now_s() + EXPECT_S

    def claim_changed(self, stream: int) -> tuple[StreamNode, int] | None:
        """The node and version to assume from now on; None if no release of the stream was announced."""
        node, version, until_s = self._expected.pop(stream, (None, 0, 0.0))
        if node is None or self._now_s() > until_s:
            return None
        self._guessed.add(stream)
        self._has_news = True
        return node, version

    def take_news(self) -> bool:
        """Whether a release was assumed since the last call."""
        has_news, self._has_news = self._has_news, False
        return has_news

    def is_guess(self, stream: int) -> bool:
        """Whether the stream's node is assumed and has not been read yet."""
        return stream in self._guessed

    def settle(self, stream: int) -> None:
        """Ends the guess: the stream's claim or node has been read or written."""
        self._guessed.discard(stream)
