"""How a stream is doing, in Burrow's words, from a short history of its committed position and its end.

Pure. Burrow is LinkedIn's monitor of Kafka consumers (its wiki, "Consumer Lag Evaluation Rules"). It needs no
threshold for lag: only how lag and commits move over a window counts. Where its rules say "a commit", a new
(epoch, seq) of the head is meant here. The window is `BATON_STATUS_WINDOW_S`; `lag_history.py` keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from operator import eq
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


def status_for(samples: Sequence[Sample], *, window_ms: int) -> Status:
    """The status that follows from the samples (oldest first, at least one, none older than the window).

    REWIND: the position went back, or the log ends below it.
    OK: some sample had no lag, or the samples do not span the window yet, or none of the following holds.
    STOP: no commit in the whole window. STALL: commits, but the position does not advance.
    WARN: the position advances, but each commit leaves more lag than the one before.

    >>> behind = [Sample(at_ms=t, position=5, end=9, commit=(1, 1)) for t in (0, 500, 1000)]
    >>> status_for(behind, window_ms=1000)
    'STOP'
    """
    newest, oldest = samples[-1], samples[0]
    positions = [sample.position for sample in samples]
    if newest.lag < 0 or positions != sorted(positions):
        return "REWIND"
    if any(map(eq, positions, [sample.end for sample in samples])) or newest.at_ms - oldest.at_ms < window_ms:
        return "OK"
    if newest.commit == oldest.commit:
        return "STOP"
    if newest.position == oldest.position:
        return "STALL"
    return "WARN" if _falls_behind(samples) else "OK"


def _falls_behind(samples: Sequence[Sample]) -> bool:
    # only samples at which the position advanced: between commits lag only grows
    commits, lag_after = 0, math.inf
    for later, earlier in pairwise(reversed(samples)):
        if later.position > earlier.position:
            # backwards, as most streams have a commit that left less lag among their last ones
            if later.lag >= lag_after:
                return False
            commits, lag_after = commits + 1, later.lag
    return commits >= MIN_COMMITS
