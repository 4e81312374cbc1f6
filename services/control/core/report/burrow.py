"""How a stream is doing, in Burrow's words, from a short history of its committed position and its end.

Pure. Burrow is LinkedIn's monitor of Kafka consumers (its wiki, "Consumer Lag Evaluation Rules"). It needs no
threshold for lag: only how lag and commits move over a window counts. Where its rules say "a commit", a new
(epoch, seq) of the head is meant here. The window is `BATON_STATUS_WINDOW_S`; `lag_history.py` keeps it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Literal

import msgspec

Status = Literal["OK", "WARN", "STOP", "STALL", "REWIND"]

MIN_COMMITS = 3
"""A stream falls behind when this many commits in a row each leave more lag than the one before."""


class Sample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stream at one moment: `at_ms` by a steady clock, `commit` is (epoch, seq) of its head.

    `gc=False`: it is part of no cycle, and control keeps tens of thousands of them.
    """

    at_ms: int
    position: int
    end: int
    commit: tuple[int, int]

    @property
    def lag(self) -> int:
        """Records between the committed position and the end; negative when the log was lost."""
        return self.end - self.position


class Window:
    """The last samples of one stream, oldest first: so many that they span `span_ms`, and no more.

    What it notes spares a status the look at all samples. `_back_ms`: when the position last went back;
    `_level_ms`: when there was last no lag. `_commits`: how many samples have a later position than the one
    before; `_lag`: what the last of these left; `_before_ms`: when the sample before it was. `_eased_ms`:
    `_before_ms` of the last one after which the next left no more lag.

    >>> window = Window(1000)
    >>> for at_ms in (0, 500, 1000):
    ...     dropped = window.add(Sample(at_ms=at_ms, position=5, end=9, commit=(1, 1)))
    >>> window.status(), dropped
    ('STOP', [])
    """

    __slots__ = (
        *("_back_ms", "_before_ms", "_commits", "_eased_ms", "_lag", "_level_ms", "_span_ms", "samples"),
    )

    def __init__(self, span_ms: int) -> None:
        self._span_ms = span_ms
        self._back_ms = self._level_ms = self._before_ms = self._eased_ms = self._lag = -math.inf
        self._commits = 0
        self.samples: deque[Sample] = deque()

    def __repr__(self) -> str:
        return f"<Window of {len(self.samples)} samples>"

    def add(self, sample: Sample) -> list[Sample]:
        """Appends a newer sample; returns those that have left the window."""
        samples, dropped = self.samples, []
        before = samples[-1] if samples else sample
        if sample.position < before.position:
            self._back_ms = sample.at_ms
        elif sample.position > before.position:
            if sample.lag <= self._lag:
                self._eased_ms = self._before_ms
            self._commits, self._lag, self._before_ms = self._commits + 1, sample.lag, before.at_ms
        if sample.position == sample.end:
            self._level_ms = sample.at_ms
        samples.append(sample)
        # keep one sample that is at least a window old: without it the rest would not span the window
        while len(samples) > 1 and sample.at_ms - samples[1].at_ms >= self._span_ms:
            dropped.append(samples.popleft())
            self._commits -= samples[0].position > dropped[-1].position
        return dropped

    def status(self) -> Status:
        """The status that follows from the samples, of which there is at least one.

        REWIND: the position went back, or the log ends below it.
        OK: some sample had no lag, or the samples do not span the window yet, or none of the following holds.
        STOP: no commit in the whole window. STALL: commits, but the position does not advance.
        WARN: the position advances, but each commit leaves more lag than the one before.
        """
        newest, oldest = self.samples[-1], self.samples[0]
        if newest.lag < 0 or self._back_ms > oldest.at_ms:
            return "REWIND"
        if self._level_ms >= oldest.at_ms or newest.at_ms - oldest.at_ms < self._span_ms:
            return "OK"
        if newest.commit == oldest.commit:
            return "STOP"
        if newest.position == oldest.position:
            return "STALL"
        falls_behind = self._commits >= MIN_COMMITS and self._eased_ms < oldest.at_ms
        return "WARN" if falls_behind else "OK"
