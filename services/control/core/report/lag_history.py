"""What a stream's recent positions and ends say: its status, its rate, and how long its lag has lasted.

Pure. `LagHistory` keeps each sample once: those of the window for status and rate, and of the older ones
those that say when the oldest waiting record was written. `live/view/cluster_view.py` feeds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from services.control.core.report.burrow import Sample, Status, Window

MOST_OLDER = 64
"""Older samples of one stream. They stand apart by a share of the time that they span, so a lag of hours is
known to within a sixteenth of it."""


class Trend(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a stream is doing.

    `rate`, `read_rate`: records per second over the window that its log has gained, and that were accounted
    for; None: unknown. `lag_ms`: how long the oldest record that is not accounted for has waited; 0 without
    lag, None: unknown.
    """

    status: Status = "OK"
    rate: float | None = None
    read_rate: float | None = None
    lag_ms: int | None = None


UNKNOWN = Trend()
"""Of a stream without samples."""


def rate_of(gained: int, within_ms: int) -> float | None:
    """Records per second. None without any time, or if the offset has gone back.

    >>> rate_of(20, 2000), rate_of(0, 2000), rate_of(-1, 2000), rate_of(1, 0)
    (10.0, 0.0, None, None)
    """
    return gained * 1000 / within_ms if gained >= 0 and within_ms > 0 else None


def lag_ms_of(newest: Sample, earlier: Iterable[Sample]) -> int | None:
    """Ms since `end` was at the newest position, between two samples by interpolation.

    `earlier`: samples before the newest, backwards. 0 without lag; None if all ends lie above the position.

    >>> newest = Sample(at_ms=9000, position=15, end=30, commit=(1, 1))
    >>> lag_ms_of(newest, [Sample(at_ms=3000, position=5, end=10, commit=(1, 1))])
    4500
    """
    if newest.lag <= 0:
        return 0
    later = newest
    for sample in earlier:
        if sample.end > later.end:
            return None  # the log was lost in between
        if sample.end <= newest.position:
            share = (newest.position - sample.end) / (later.end - sample.end)
            return round(newest.at_ms - sample.at_ms - share * (later.at_ms - sample.at_ms))
        later = sample
    return None


@dataclass(slots=True)
class _Samples:
    """The samples of one stream: those of the window, and before them older ones, oldest first.

    The oldest waiting record was written after the first older sample and before the second. Without older
    ones it was written within the window. `log_since_ms`: the log was lost then, and ends before that are of
    other records.
    """

    window: Window
    older: list[Sample] = field(default_factory=list)
    log_since_ms: int = 0

    def add(self, sample: Sample) -> None:
        recent = self.window.samples
        if recent and sample.end < recent[-1].end:
            self.older.clear()
            self.log_since_ms = sample.at_ms
        for past in self.window.add(sample):
            self._keep(past)
        if recent[0].end <= sample.position:
            self.older.clear()
        while len(self.older) > 1 and self.older[1].end <= sample.position:
            del self.older[0]

    def _keep(self, sample: Sample) -> None:
        older = self.older
        if sample.at_ms < self.log_since_ms:
            return
        if older:
            spanned_ms = older[-1].at_ms - older[0].at_ms
            if sample.at_ms - older[-1].at_ms < spanned_ms * 2 / MOST_OLDER:
                return
        older.append(sample)
        if len(older) > MOST_OLDER:
            del older[1::2]

    def trend(self) -> Trend:
        recent = self.window.samples
        oldest, newest = recent[0], recent[-1]
        around = [*self.older[:2], oldest][:2] if self.older else recent
        within_ms = newest.at_ms - oldest.at_ms
        return Trend(
            status=self.window.status(),
            rate=rate_of(newest.end - oldest.end, within_ms),
            read_rate=rate_of(newest.position - oldest.position, within_ms),
            lag_ms=lag_ms_of(newest, reversed(around)),
        )


class LagHistory:
    """The samples of one group's streams, and the trends that follow from them.

    `window_ms`: the span that decides status and rate.
    """

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._samples: dict[int, _Samples] = {}

    def __repr__(self) -> str:
        return f"<LagHistory of {len(self._samples)} streams over {self._window_ms} ms>"

    def observe(self, samples: Iterable[tuple[int, Sample]]) -> dict[int, Trend]:
        """The trends after one more sample per stream; drops the history of streams without one."""
        kept: dict[int, _Samples] = {}
        trends: dict[int, Trend] = {}
        for stream, sample in samples:
            own = kept[stream] = self._samples.get(stream) or _Samples(Window(self._window_ms))
            own.add(sample)
            trends[stream] = own.trend()
        self._samples = kept
        return trends
