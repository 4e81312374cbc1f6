"""Releases that a member has been told of, so that it can claim without having read what they change.

With a delta comes what the donor is about to write (docs/handover.md). When the claim then changes, that is
taken for true until it is read: two round trips of a handover's pause. It is a guess and harms nobody: who
claims names the version that it expects, and ZooKeeper refuses any other. Used by `group_mirror.py`.
"""

from __future__ import annotations

from shared.cluster import StreamNode


class ExpectedReleases:
    """What is expected, per stream, and which of it has come about, as far as a changed claim tells."""

    def __init__(self) -> None:
        self._expected: dict[int, tuple[StreamNode, int]] = {}
        self._guessed: set[int] = set()
        self._has_come = False

    def __repr__(self) -> str:
        return f"<ExpectedReleases {sorted(self._expected)}, guessed {sorted(self._guessed)}>"

    def expect(self, stream: int, node: StreamNode, version: int) -> None:
        """When the stream's claim changes, its node will be this, in this version."""
        self._expected[stream] = node, version

    def come(self, stream: int) -> tuple[StreamNode, int] | None:
        """What was expected of the stream, whose claim has changed; None: nothing."""
        found = self._expected.pop(stream, None)
        if found is not None:
            self._guessed.add(stream)
            self._has_come = True
        return found

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
