"""Releases that a member has been told of, so that it can claim without having read what they change.

With a delta comes what the donor is about to write (docs/handover.md). When the claim then changes, that is
taken for true until it is read: two round trips of a handover's pause. It is a guess: who claims names the
version that it expects, and reads what the node really holds (`coordinator.py`). Used by `group_mirror.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from shared.model.cluster import StreamNode

EXPECT_S = 3.0
"""A release follows its delta within milliseconds; what changes the claim later is something else."""


class ExpectedReleases:
    """What is expected, per stream, and which of it has come about, as far as a changed claim tells."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._expected: dict[int, tuple[StreamNode, int, float]] = {}
        self._guessed: set[int] = set()
        self._has_come = False

    def __repr__(self) -> str:
        return f"<ExpectedReleases {sorted(self._expected)}, guessed {sorted(self._guessed)}>"

    def expect(self, stream: int, node: StreamNode, version: int) -> None:
        """When the stream's claim changes, soon, its node will be this, in this version."""
        self._expected[stream] = node, version, self._now_s() + EXPECT_S

    def come(self, stream: int) -> tuple[StreamNode, int] | None:
        """What was expected of the stream, whose claim has changed; None: nothing."""
        node, version, until_s = self._expected.pop(stream, (None, 0, 0.0))
        if node is None or self._now_s() > until_s:
            return None
        self._guessed.add(stream)
        self._has_come = True
        return node, version

    def take_news(self) -> bool:
        """Whether something has come since the last call."""
        has_come, self._has_come = self._has_come, False
        return has_come

    def is_guess(self, stream: int) -> bool:
        """Whether what has come was not read yet."""
        return stream in self._guessed

    def settle(self, stream: int) -> None:
        """The stream's claim or node has been read, or written."""
        self._guessed.discard(stream)
