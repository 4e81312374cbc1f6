"""An hour of a group's numbers: one sample every 15 s, as control keeps it and as the topic stores it.

Pure. Of two samples for one slot (`hour.py`) the one that knows more stays. `live/view/history.py` takes and
restores them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from services.control.core.history.hour import STEP_MS, Column, Hour, Number, Rank, decode_sample, slot_of
from services.control.core.report.report import totals_of
from services.control.core.report.rows import ProducerRow, StreamRow
from shared.errors import InvalidInput

MAX_SAMPLE_BYTES: Final = 512 * 1024
"""Above any sample of 4,096 streams; bounds what a foreign record can make control do."""
MAX_STREAMS: Final = 4096


class GroupSample(msgspec.Struct, frozen=True, kw_only=True):
    """A group's numbers in one slot; null is unknown. Those of producers are the same in every group."""

    fragments_per_s: Number = None
    sessions_per_s: Number = None
    open_sessions: Number = None
    lag: Number = None
    lag_ms: Number = None
    unowned: Number = None
    refused_per_s: dict[str, float] | None = None
    lake_behind_s: Number = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A record of the topic `baton.history`: one group in the slot that begins at `at` (ms UTC).

    `writer`: the control that took it. `lag`, `rate`, `open_sessions`: of each stream, by its number.
    """

    at: int
    group: str
    writer: str
    totals: GroupSample
    lag: Sequence[Number] = ()
    rate: Sequence[Number] = ()
    open_sessions: Sequence[Number] = ()


class GroupHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The last hour of a group, in columns with one number per step."""

    group: str
    from_: Annotated[int, Meta(description="begin of the first step, ms UTC")] = msgspec.field(name="from")
    step_ms: int
    fragments_per_s: Annotated[Column, Meta(description="records appended")]
    sessions_per_s: Annotated[Column, Meta(description="sessions delivered")]
    open_sessions: Column
    lag: Column
    lag_ms: Column
    unowned: Annotated[Column, Meta(description="streams without an owner")]
    refused_per_s: Annotated[dict[str, Column], Meta(description="by reason, of all producers")]
    lake_behind_s: Column


class StreamHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The last hour of a stream, in columns with one number per step."""

    group: str
    stream: int
    from_: Annotated[int, Meta(description="begin of the first step, ms UTC")] = msgspec.field(name="from")
    step_ms: int
    lag: Column
    rate: Annotated[Column, Meta(description="records appended per second")]
    open_sessions: Column


def sample_of(
    rows: Sequence[StreamRow],
    producers: Iterable[ProducerRow],
    *,
    at: int,
    group: str,
    writer: str,
    sessions_per_s: Number,
    lake_behind_s: Number,
) -> Sample:
    """The sample of a group from its rows; numbers are rounded to what a chart can show."""
    totals = totals_of(rows)
    return Sample(
        at=slot_of(at),
        group=group,
        writer=writer,
        totals=GroupSample(
            fragments_per_s=_rounded(totals.rate),
            sessions_per_s=_rounded(sessions_per_s),
            open_sessions=totals.open_sessions,
            lag=totals.lag,
            lag_ms=totals.lag_ms,
            unowned=sum(row.owner is None for row in rows),
            refused_per_s=refused_by_reason(producers),
            lake_behind_s=_rounded(lake_behind_s),
        ),
        lag=[row.lag for row in rows],
        rate=[_rounded(row.rate) for row in rows],
        open_sessions=[row.open_sessions for row in rows],
    )


def sessions_between(before: Mapping[int, int], rows: Iterable[StreamRow]) -> tuple[int, dict[int, int]]:
    """How many sessions were delivered since `before`, and what to pass as `before` next time.

    `before`: delivered sessions by stream, {} at first. A stream whose head was not known before, or that has
    started over, counts nothing this time.
    """
    now = {row.stream: row.counts.sessions for row in rows if row.counts.fragments}
    gained = sum(max(0, count - before.get(stream, count)) for stream, count in now.items())
    return gained, {**before, **now}


def refused_by_reason(producers: Iterable[ProducerRow]) -> dict[str, float] | None:
    """What all producers refuse per second, by reason; None if it is known of none."""
    known = [row.refused_per_s for row in producers if row.refused_per_s is not None]
    reasons = sorted({reason for refused in known for reason in refused})
    sums = {reason: round(sum(refused.get(reason, 0.0) for refused in known), 3) for reason in reasons}
    return sums if known else None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Sample).decode


def encode_sample(sample: Sample) -> bytes:
    """The sample as a record's value."""
    return _encode(sample)


def parse_sample(raw: bytes) -> Sample:
    """The sample in a record's value; ignores unknown fields. Raises InvalidInput for anything else."""
    sample = decode_sample(raw, _decode, MAX_SAMPLE_BYTES)
    if sample.at % STEP_MS or not len(sample.lag) == len(sample.rate) == len(sample.open_sessions):
        raise InvalidInput("not a sample: no slot, or columns of different lengths")
    if len(sample.lag) > MAX_STREAMS:
        raise InvalidInput(f"not a sample: {len(sample.lag)} streams")
    return sample


class _Kept(msgspec.Struct, frozen=True):
    """A sample in memory: the streams' numbers as arrays, with NaN for None (24 KB for 1,000 streams)."""

    totals: GroupSample
    lag: array[float]
    rate: array[float]
    open_sessions: array[float]


class HistoryRing:
    """The samples of all groups in the last SLOTS slots."""

    def __init__(self) -> None:
        self._hour: Hour[_Kept] = Hour()

    def __repr__(self) -> str:
        return f"<HistoryRing of {len(self._hour)} groups>"

    def add(self, sample: Sample, now_ms: int) -> None:
        """Keeps the sample, unless it is older than an hour, of the future, or knows less than the kept one.

        Samples may come in any order, and more than once. Drops what is older than an hour.
        """
        kept = _Kept(sample.totals, _array(sample.lag), _array(sample.rate), _array(sample.open_sessions))
        self._hour.add(sample.group, sample.at, _rank(sample), kept, now_ms)

    def of_group(self, group: str, now_ms: int) -> GroupHistory:
        """The hour up to now; nulls only, if nothing is known of the group."""
        first, kept = self._hour.of(group, now_ms)
        refused = [one.totals.refused_per_s if one else None for one in kept]
        reasons = sorted({reason for one in refused if one for reason in one})

        def column(value: Callable[[GroupSample], Number]) -> list[Number]:
            return [value(one.totals) if one else None for one in kept]

        return GroupHistory(
            group=group,
            from_=first,
            step_ms=STEP_MS,
            fragments_per_s=column(lambda totals: totals.fragments_per_s),
            sessions_per_s=column(lambda totals: totals.sessions_per_s),
            open_sessions=column(lambda totals: totals.open_sessions),
            lag=column(lambda totals: totals.lag),
            lag_ms=column(lambda totals: totals.lag_ms),
            unowned=column(lambda totals: totals.unowned),
            # a reason that a sample does not name was not refused then
            refused_per_s={
                reason: [None if one is None else one.get(reason, 0.0) for one in refused]
                for reason in reasons
            },
            lake_behind_s=column(lambda totals: totals.lake_behind_s),
        )

    def of_stream(self, group: str, stream: int, now_ms: int) -> StreamHistory:
        """The hour up to now; nulls only, if nothing is known of the stream."""
        first, kept = self._hour.of(group, now_ms)

        def column(values: Callable[[_Kept], array[float]]) -> list[Number]:
            return [_number(values(one), stream) if one else None for one in kept]

        return StreamHistory(
            group=group,
            stream=stream,
            from_=first,
            step_ms=STEP_MS,
            lag=column(lambda one: one.lag),
            rate=column(lambda one: one.rate),
            open_sessions=column(lambda one: one.open_sessions),
        )


def _rank(sample: Sample) -> Rank:
    """Which of two samples for one slot stays: the one with more known numbers, else by the writer's name."""
    totals = sample.totals
    of_group = [getattr(totals, name) for name in GroupSample.__struct_fields__]
    known = [*of_group, *sample.lag, *sample.rate, *sample.open_sessions]
    return len(known) - known.count(None), sample.writer


def _array(values: Iterable[Number]) -> array[float]:
    return array("d", (math.nan if value is None else value for value in values))


def _number(values: array[float], index: int) -> Number:
    if index >= len(values) or math.isnan(values[index]):
        return None
    value = values[index]
    return int(value) if value.is_integer() else value


def _rounded(value: Number) -> Number:
    return None if value is None else round(value, 1)
