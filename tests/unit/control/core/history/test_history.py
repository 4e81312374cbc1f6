"""An hour of samples: slots, the meeting of two controls, gaps, and what the topic holds."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace

import msgspec
import pytest

from services.control.core.history.group_history import (
    GroupSample,
    HistoryRing,
    Sample,
    encode_sample,
    parse_sample,
    refused_by_reason,
    sessions_between,
)
from services.control.core.history.hour import SLOTS, STEP_MS, Number
from services.control.core.lake.freshness import FreshnessRow
from services.control.core.report.observed import Observed
from services.control.core.report.producer_rates import ProducerCounts
from services.control.core.report.report import report_on
from services.control.core.report.rows import CountsRow, ProducerRow, StreamRow
from services.control.live.view.history import History
from shared.errors import InvalidInput
from shared.model.names import DEFAULT_GROUP
from tests.unit.control.sources import Sources, small_baton

NOW_MS = 1_000_000 * STEP_MS


def sample(
    slot: int, writer: str = "a", *, lag: list[Number] | None = None, sessions: Number = None
) -> Sample:
    """A sample of the slot with this number before now."""
    lags: list[Number] = [1.0, 2.0] if lag is None else lag
    return Sample(
        at=NOW_MS - slot * STEP_MS,
        group="g",
        writer=writer,
        totals=GroupSample(lag=3.0, sessions_per_s=sessions),
        lag=lags,
        rate=[None] * len(lags),
        open_sessions=[None] * len(lags),
    )


def ring_of(*samples: Sample, now_ms: int = NOW_MS) -> HistoryRing:
    """A ring that has got the samples in this order."""
    ring = HistoryRing()
    for one in samples:
        ring.add(one, now_ms)
    return ring


@pytest.mark.parametrize("seed", range(20))
def test_samples_of_several_controls_are_merged_whatever_their_order(seed: int) -> None:
    """One per slot: the one that knows more, else by the writer's name. Repeats change nothing."""
    chance = random.Random(seed)
    samples = [
        sample(slot, writer, lag=[chance.choice((None, float(slot), slot / 3)) for _ in range(3)])
        for writer in "abc"
        for slot in range(300)
        if chance.random() < 0.5
    ]
    one = ring_of(*samples)
    shuffled = chance.sample(samples, len(samples)) + chance.sample(samples, 50)
    other = ring_of(*shuffled)

    assert one.of_group("g", NOW_MS) == other.of_group("g", NOW_MS)
    for stream in range(3):
        history = one.of_stream("g", stream, NOW_MS)
        assert history == other.of_stream("g", stream, NOW_MS)
        for n, value in enumerate(history.lag):
            here = [found for found in samples if found.at == history.from_ + n * STEP_MS]
            best = max(
                here, key=lambda one: (sum(lag is not None for lag in one.lag), one.writer), default=None
            )
            assert value == (best.lag[stream] if best else None)


def test_the_hour_ends_now_and_gaps_are_null() -> None:
    """Always SLOTS steps; the slot that has just begun waits for its sample."""
    ring = ring_of(sample(0), sample(2), sample(SLOTS - 1), sample(SLOTS))

    now = ring.of_group("g", NOW_MS)
    later = ring.of_group("g", NOW_MS + STEP_MS)
    much_later = ring.of_group("g", NOW_MS + 2 * STEP_MS)

    assert now.from_ == NOW_MS - (SLOTS - 1) * STEP_MS
    assert [n for n, lag in enumerate(now.lag) if lag is not None] == [0, SLOTS - 3, SLOTS - 1]
    assert later == now
    assert (much_later.from_, much_later.lag[-1]) == (now.from_ + STEP_MS, None)
    assert len(now.lag) == len(now.lag_ms) == len(much_later.lag) == SLOTS
    assert set(now.lag_ms) == {None}


def test_what_is_not_known_of_a_stream_is_null() -> None:
    """A stream that was added later has no past, and an unknown group none at all."""
    ring = ring_of(sample(1, lag=[1.0]), sample(0, lag=[1.5, 2.0]))

    assert ring.of_stream("g", 0, NOW_MS).lag[-2:] == [1, 1.5]
    assert ring.of_stream("g", 1, NOW_MS).lag[-2:] == [None, 2]
    assert set(ring.of_stream("g", 9, NOW_MS).lag) == {None}
    assert set(ring.of_group("other", NOW_MS).lag) == {None}


def test_samples_of_the_future_and_of_the_past_are_left_out() -> None:
    """A clock that was wrong must not fill the hour, and a group that is gone is forgotten."""
    ring = ring_of(sample(-1), sample(SLOTS + 1))
    assert set(ring.of_group("g", NOW_MS).lag) == {None}

    ring.add(sample(0), NOW_MS)
    ring.add(msgspec.structs.replace(sample(-2 * SLOTS), group="new"), NOW_MS + 2 * SLOTS * STEP_MS)
    assert repr(ring) == "<HistoryRing of 1 groups>"


def test_a_thousand_streams_fit_into_a_small_record_and_a_few_megabytes() -> None:
    """A record has at most 64 KB, an hour of them in memory at most 8 MB."""
    chance = random.Random(1)

    def large(slot: int) -> Sample:
        numbers = [chance.randrange(10**8) / 10 for _ in range(3_000)]
        columns = {"lag": numbers[:1000], "rate": numbers[1000:2000], "open_sessions": numbers[2000:]}
        return msgspec.structs.replace(sample(slot), **columns)

    assert len(encode_sample(large(0))) <= 64 * 1024
    tracemalloc.start()
    try:
        ring = ring_of(*(large(slot) for slot in reversed(range(SLOTS))))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert None not in ring.of_stream("g", 999, NOW_MS).rate
    assert kept <= 8 * 1024 * 1024


def test_a_record_is_read_back_as_it_was_written() -> None:
    """With its writer; unknown fields are those of a later version."""
    written = sample(3, "http://control:8000", lag=[None, 1.5], sessions=2.0)
    raw = encode_sample(written)

    assert parse_sample(raw) == written
    assert parse_sample(raw[:-1] + b',"new":[1]}') == written


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[1", id="not JSON"),
        pytest.param(b'{"at":15000,"group":"g","writer":"a"}', id="a field is missing"),
        pytest.param(encode_sample(msgspec.structs.replace(sample(0), at=NOW_MS + 1)), id="between slots"),
        pytest.param(encode_sample(msgspec.structs.replace(sample(0), rate=[1.0])), id="unequal columns"),
        pytest.param(encode_sample(sample(0, lag=[1.0] * 5_000)), id="too many streams"),
        pytest.param(encode_sample(sample(0)) + b" " * 600_000, id="too large"),
    ],
)
def test_a_foreign_record_is_invalid(raw: bytes) -> None:
    """Whatever stands in the topic, control only skips it."""
    with pytest.raises(InvalidInput):
        parse_sample(raw)


def rows(**sessions: int) -> list[StreamRow]:
    """Rows of the streams `s0`, `s1`, … that have delivered so many sessions; -1: the head is unknown."""
    sources = small_baton()
    observed = Observed(cluster=sources.cluster.cluster, offsets=sources.offsets.offsets)
    (row, *_) = report_on(observed, {}).streams[DEFAULT_GROUP]
    return [
        msgspec.structs.replace(
            row,
            stream=int(name[1:]),
            counts=CountsRow() if count < 0 else CountsRow(fragments=100, sessions=count),
        )
        for name, count in sessions.items()
    ]


def test_delivered_sessions_are_counted_stream_by_stream() -> None:
    """A head that cannot be read for a moment, or that starts over, is no burst of sessions."""
    gained, known = sessions_between({}, rows(s0=10, s1=20))
    counts = [gained]
    for later in (
        rows(s0=13, s1=20),
        rows(s0=13, s1=-1),
        rows(s0=14, s1=25),
        rows(s0=2, s1=25),
        rows(s0=3, s1=25, s2=50),
    ):
        gained, known = sessions_between(known, later)
        counts.append(gained)

    assert counts == [0, 3, 0, 6, 0, 1]


def test_refusals_of_all_producers_are_summed_by_reason() -> None:
    """Unknown is None, not an empty list of reasons."""

    def producer(refused: dict[str, float] | None) -> ProducerRow:
        return ProducerRow(
            id="p", address="", pid=1, since=1, accepted_per_s=1.0, refused_per_s=refused, answers=True
        )

    assert refused_by_reason([]) is None
    assert refused_by_reason([producer(None)]) is None
    assert refused_by_reason([producer(None), producer({})]) == {}
    summed = refused_by_reason([producer({"time": 1.0}), producer({"time": 0.5, "size": 2.0})])
    assert summed == {"size": 2.0, "time": 1.5}


class Taken:
    """A history of the small Baton, with a clock that only the test moves."""

    def __init__(self, *, behind_s: float = 7.0) -> None:
        self.sources: Sources = small_baton()
        self.now_ms = NOW_MS
        self.written: list[bytes] = []
        self.lake = [
            FreshnessRow(
                group=DEFAULT_GROUP,
                topic="sessions",
                behind_records=1,
                behind_s=behind_s,
                oldest_at=1,
                lost_records=0,
                retention_ms=None,
                loss_in_s=None,
                measured_at=NOW_MS,
            )
        ]
        self.view = self.sources.view()
        self.history = self.restarted()

    def restarted(self) -> History:
        """The history of another process."""
        return History(
            self.view,
            lambda: self.lake,
            self.written.append,
            writer="http://control:8000",
            now_ms=lambda: self.now_ms,
        )

    async def take(self, end: int) -> None:
        """One more sample, a slot later, with every log at this end."""
        ends = dict.fromkeys(range(4), end)
        self.sources.offsets.offsets = replace(self.sources.offsets.offsets, end=ends)
        await self.view.step()
        self.history.step()
        self.now_ms += STEP_MS
        self.sources.now_s += STEP_MS / 1000


async def test_a_sample_holds_what_the_view_shows() -> None:
    """Sums of the group and columns of its streams; what needs two readings is unknown at first.

    So are the open sessions of the group while one owner is silent: the hour has a gap then, and no dip.
    """
    taken = Taken()
    counts = ProducerCounts(id="p1", at=0, accepted=0)
    taken.sources.producers.counts = {"p1": counts}
    await taken.take(100)
    taken.sources.producers.counts = {
        "p1": msgspec.structs.replace(counts, at=10_000, rejected={"time": 20}, accepted=5)
    }
    await taken.take(400)

    group = taken.history.of_group(DEFAULT_GROUP)
    stream = taken.history.of_stream(DEFAULT_GROUP, 0)

    assert group.fragments_per_s[-2:] == [None, 80.0]
    assert group.sessions_per_s[-2:] == [None, 0.0]
    assert group.lag[-2:] == [150, 1350]
    assert (group.open_sessions[-1], stream.open_sessions[-1]) == (None, 7)
    assert group.unowned[-1] == 1
    assert group.lake_behind_s[-1] == 7.0
    assert group.refused_per_s == {"time": [*[None] * (SLOTS - 1), 2.0]}
    assert (stream.lag[-2:], stream.rate[-2:]) == ([10, 310], [None, 20.0])


async def test_old_readings_are_no_samples() -> None:
    """While Kafka is away the hour has a gap, and an old measurement of the lake is none of now."""
    taken = Taken()
    await taken.take(100)
    taken.sources.offsets.is_down = True
    await taken.take(100)
    taken.sources.offsets.is_down = False
    taken.now_ms += 5 * STEP_MS
    await taken.take(200)

    group = taken.history.of_group(DEFAULT_GROUP)

    assert [lag is not None for lag in group.lag[-8:]] == [True, *[False] * 6, True]
    assert (group.lake_behind_s[-8], group.lake_behind_s[-1]) == (7.0, None)


async def test_a_restarted_control_reads_its_hour_back() -> None:
    """From what it has written; records that are not samples are skipped."""
    taken = Taken()
    for end in (100, 250, 300):
        await taken.take(end)
    before = taken.history.of_group(DEFAULT_GROUP), taken.history.of_stream(DEFAULT_GROUP, 2)

    again = taken.restarted()
    again.restore([b"not a sample", None, *taken.written])

    assert (again.of_group(DEFAULT_GROUP), again.of_stream(DEFAULT_GROUP, 2)) == before
    assert [lag for lag in before[0].lag if lag is not None] == [150, 750, 950]
    assert {parse_sample(raw).writer for raw in taken.written} == {"http://control:8000"}


async def test_nothing_is_taken_before_the_cluster_was_read() -> None:
    """An empty sample would look like an empty group."""
    taken = Taken()

    taken.history.step()

    assert taken.written == []
