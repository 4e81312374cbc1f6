"""Rows are joined from three sources, each trusted only for what it knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.control.core.report.lag_history import Trend
from services.control.core.report.observed import (
    Answers,
    Cluster,
    MemberStatus,
    Observed,
    Offsets,
    StreamStatus,
)
from services.control.core.report.producer_rates import ProducerRate
from services.control.core.report.report import report_on, samples_for, stream_detail, totals_of
from services.control.core.report.rows import StreamRow
from shared.model.names import DEFAULT_GROUP
from shared.model.start import GroupStart
from tests.unit.control.sources import head, small_baton


@pytest.fixture
def observed() -> Observed:
    """What control knows after it has read every source of the small Baton."""
    sources = small_baton()
    return Observed(
        cluster=sources.cluster.cluster,
        offsets=sources.offsets.offsets,
        answers=Answers(
            statuses=sources.members.statuses,
            silent=frozenset({(DEFAULT_GROUP, "m2")}),
            plans=sources.members.plans,
        ),
    )


def rows_of(observed: Observed) -> list[StreamRow]:
    """The rows of the default group."""
    return list(report_on(observed, {}).streams[DEFAULT_GROUP])


def test_a_row_joins_claim_head_end_and_the_owners_report(observed: Observed) -> None:
    """Position, lag and counts come from the head; the owner reports what is open."""
    row = rows_of(observed)[0]

    assert (row.owner, row.epoch, row.state) == ("m1", 3, "running")
    assert (row.position, row.end, row.lag, row.safe_offset) == (90, 100, 10, 80)
    assert (row.open_sessions, row.state_bytes) == (7, 700)
    assert row.counts.fragments == 90
    assert row.counts.ticks == 0


def test_a_report_of_another_epoch_is_dropped(observed: Observed) -> None:
    """A status that was read before the claim changed says nothing about the new epoch."""
    row = rows_of(observed)[1]

    assert (row.owner, row.epoch, row.state, row.open_sessions) == ("m1", 3, "opening", None)


def test_a_stream_without_a_head_begins_where_its_log_begins(observed: Observed) -> None:
    """Its position is the first offset that is left, and everything after it is lag."""
    offsets = Offsets(first={3: 40}, end={3: 100}, heads=observed.offsets.heads)

    row = rows_of(Observed(cluster=observed.cluster, offsets=offsets))[3]

    assert (row.owner, row.epoch, row.state) == (None, 0, "unowned")
    assert (row.position, row.safe_offset, row.lag) == (40, 40, 60)


def test_a_stream_without_a_head_begins_at_its_groups_start(observed: Observed) -> None:
    """What lies below is current in the followed group, and is not lag."""
    start = GroupStart(follows="first", offsets={2: 10, 3: 70})
    group = replace(observed.cluster.groups[DEFAULT_GROUP], start=start)
    cluster = replace(observed.cluster, groups={DEFAULT_GROUP: group})
    offsets = Offsets(first={2: 40, 3: 40}, end={2: 100, 3: 100})
    known = Observed(cluster=cluster, offsets=offsets)

    assert [(row.position, row.lag) for row in rows_of(known)[2:4]] == [(40, 60), (70, 30)]
    assert dict(samples_for(known, DEFAULT_GROUP, 1))[3].position == 70


def test_lag_is_never_negative(observed: Observed) -> None:
    """A log that was lost ends below the position; the status reports that, not the lag."""
    offsets = Offsets(end={0: 5}, heads=observed.offsets.heads)

    row = rows_of(Observed(cluster=observed.cluster, offsets=offsets))[0]

    assert row.lag == 0


def test_an_owner_that_reports_rewind_is_believed(observed: Observed) -> None:
    """A stream that its owner has stopped over a lost log is REWIND, whatever its history."""
    status = MemberStatus(
        id="m1", group=DEFAULT_GROUP, streams=[StreamStatus(stream=0, epoch=3, state="rewind")]
    )
    answers = Answers(statuses={(DEFAULT_GROUP, "m1"): status})

    row = rows_of(Observed(cluster=observed.cluster, offsets=observed.offsets, answers=answers))[0]

    assert row.status == "REWIND"


def test_a_row_says_that_its_stream_fails_and_why(observed: Observed) -> None:
    """A stream that its owner opens again and again without progress is not one that works."""
    failing = StreamStatus(stream=0, epoch=3, state="retrying", failures=9, why="a bad checksum")
    status = MemberStatus(id="m1", group=DEFAULT_GROUP, streams=[failing])
    answers = Answers(statuses={(DEFAULT_GROUP, "m1"): status})

    row, other, *_ = rows_of(Observed(cluster=observed.cluster, offsets=observed.offsets, answers=answers))

    assert (row.state, row.failures, row.why) == ("retrying", 9, "a bad checksum")
    assert (other.failures, other.why) == (None, "")


def test_the_default_group_is_listed_before_its_first_member() -> None:
    """A fresh stack shows its streams at once, all unowned."""
    observed = Observed(cluster=Cluster(count=2), offsets=Offsets(end={0: 1, 1: 1}))

    rows = rows_of(observed)

    assert [row.state for row in rows] == ["unowned", "unowned"]


def test_every_registered_member_has_a_row(observed: Observed) -> None:
    """It shows what the member has claimed, and whether it answers."""
    rows = report_on(observed, {}).members

    assert [(row.id, row.streams, row.answers) for row in rows] == [("m1", [0, 1], True), ("m2", [2], False)]
    assert (rows[0].lease_ms, rows[0].lease_length_ms, rows[0].zookeeper_session) == (4000, 4500, "0xa")
    assert (rows[1].lease_ms, rows[1].lease_length_ms, rows[1].zookeeper_session) == (None, None, None)


def test_totals_are_the_sums_of_the_rows(observed: Observed) -> None:
    """Every count, the lag and the open sessions; `streams` is the number of rows. A group's lag is one.

    The open sessions of three streams are not known, and a part of the sum would look like all.
    """
    rows = rows_of(observed)

    totals = totals_of(rows)

    assert totals.streams == 4
    assert totals.lag == 10 + 0 + 40 + 100
    assert totals.fragments == 90 + 100 + 60
    assert totals.open_sessions is None
    assert totals_of(rows[:1]).open_sessions == 7
    (group,) = report_on(observed, {}).groups
    assert (group.name, group.members, group.streams, group.lag) == ("default", ["m1", "m2"], 4, 150)


def test_the_detail_adds_the_node_and_the_owners_reading_position(observed: Observed) -> None:
    """It also shows the topic and its bounds."""
    detail = stream_detail(observed, DEFAULT_GROUP, rows_of(observed)[0], "fragments.0000")

    assert (detail.topic, detail.address, detail.read_position) == ("fragments.0000", "http://m1", 95)
    assert (detail.first, detail.last, detail.seq) == (0, 99, 1)
    assert (detail.node.epoch, detail.node.owner) == (3, "m1")


def test_of_a_log_that_was_not_read_nothing_is_claimed(observed: Observed) -> None:
    """Neither its end nor that all is well, and no sum of which it is a part. Where it is owned is known."""
    offsets = Offsets(first={0: 0}, end={0: 100}, heads=observed.offsets.heads)
    unread = replace(observed, offsets=offsets)

    report = report_on(unread, {DEFAULT_GROUP: {0: Trend(rate=2.5, lag_ms=70)}})
    rows = report.streams[DEFAULT_GROUP]
    detail = stream_detail(unread, DEFAULT_GROUP, rows[1], "fragments.0001")

    assert (rows[0].end, rows[0].lag, rows[0].status) == (100, 10, "OK")
    assert (rows[1].end, rows[1].lag, rows[1].status) == (None, None, None)
    assert (rows[1].owner, rows[1].position, detail.first, detail.last) == ("m1", 100, None, None)
    totals = totals_of(rows)
    assert (totals.lag, totals.lag_ms, totals.rate, report.groups[0].lag) == (None, None, None, None)


def test_a_stream_with_an_unknown_end_has_no_sample(observed: Observed) -> None:
    """No status rests on an end that was not read."""
    offsets = Offsets(end={1: 100}, heads={DEFAULT_GROUP: {1: head(30, epoch=2, seq=9)}})

    samples = samples_for(Observed(cluster=observed.cluster, offsets=offsets), DEFAULT_GROUP, 5)

    assert [(stream, sample.position, sample.commit) for stream, sample in samples] == [(1, 30, (2, 9))]


@pytest.mark.parametrize(
    ("trends", "rate", "lag_ms"),
    [
        pytest.param({}, None, None, id="nothing is known yet"),
        pytest.param({n: Trend(rate=2.5, lag_ms=n * 100) for n in range(4)}, 10.0, 300, id="all is known"),
        pytest.param({0: Trend(rate=2.5, lag_ms=70)}, None, None, id="of streams that lag it is unknown"),
        pytest.param({n: Trend(rate=0.0, lag_ms=9) for n in (0, 2, 3)}, None, 9, id="no lag"),
    ],
)
def test_rates_are_summed_and_the_longest_lag_is_shown(
    observed: Observed, trends: dict[int, Trend], rate: float | None, lag_ms: int | None
) -> None:
    """The sum is only known if every rate is, the longest if that of every stream with lag is; 1 has none."""
    rows = report_on(observed, {DEFAULT_GROUP: trends}).streams[DEFAULT_GROUP]

    totals = totals_of(rows)

    assert (totals.rate, totals.lag_ms) == (rate, lag_ms)
    assert [row.rate for row in rows] == [trends[n].rate if n in trends else None for n in range(4)]


@pytest.mark.parametrize(
    ("rates", "shown"),
    [
        ({}, (None, None, False)),
        ({"p1": ProducerRate()}, (None, None, True)),
        ({"p1": ProducerRate(accepted_per_s=3.0, refused_per_s={"time": 1.0})}, (3.0, {"time": 1.0}, True)),
    ],
)
def test_a_producer_shows_what_it_refuses(
    observed: Observed, rates: dict[str, ProducerRate], shown: tuple[object, ...]
) -> None:
    """Unknown is null: of one that does not answer, and of one that has answered only once."""
    (row,) = report_on(replace(observed, producer_rates=rates), {}).producers

    assert (row.accepted_per_s, row.refused_per_s, row.answers) == shown
