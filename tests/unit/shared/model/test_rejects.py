"""Rejects as records: they survive a round trip, and records of other programs do no harm."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.kafka.admin.topics import rejected_topic
from shared.model.names import Names
from shared.model.rejects import (
    MAX_DETAIL_BYTES,
    MAX_KEPT_BYTES,
    UNKNOWN,
    Reject,
    headers_of,
    is_reason,
    parse_reject,
)
from tests.fakes.rejects import reject_of


@given(
    posted=st.binary(max_size=100) | st.integers(0, MAX_KEPT_BYTES + 3).map(lambda size: b"x" * size),
    reason=st.from_regex(r"[a-z][a-z0-9_-]{0,40}", fullmatch=True),
    detail=st.text(st.characters(exclude_categories=["Cs"]), max_size=100),
    index=st.integers(0, 2_500),
)
def test_a_reject_is_read_as_it_was_written(posted: bytes, reason: str, detail: str, index: int) -> None:
    """Including whether it was cut."""
    reject = reject_of(posted, reason=reason, detail=detail, index=index)
    headers = headers_of(reason, detail, len(posted), index, is_cut=reject.is_cut)

    assert parse_reject(reject.value, headers) == reject
    assert reject.is_cut == (len(posted) > MAX_KEPT_BYTES)
    assert posted.startswith(reject.value)


def test_a_long_detail_is_cut() -> None:
    """Details are for people and must not fill the topic."""
    headers = headers_of("time", "é" * MAX_DETAIL_BYTES + "é", 0, 0, is_cut=False)

    assert dict(headers)["detail"] == ("é" * (MAX_DETAIL_BYTES // 2)).encode()


def test_a_cut_reject_has_the_headers_of_the_protocol() -> None:
    """Other programs read them; half a surrogate pair in the detail does no harm."""
    headers = headers_of("size", "\ud800", 7, 3, is_cut=True)

    assert headers == [
        ("reason", b"size"), ("detail", b"?"), ("size", b"7"), ("index", b"3"), ("cut", b"1")
    ]  # fmt: skip
    assert parse_reject(b"ab", headers) == Reject(value=b"ab", reason="size", detail="?", size=7, index=3)


@given(
    value=st.none() | st.binary(max_size=20),
    headers=st.lists(
        st.tuples(st.sampled_from(["reason", "detail", "size", "index", "cut"]), st.binary(max_size=12))
    ),
)
def test_any_record_can_be_read(value: bytes | None, headers: list[tuple[str, bytes]]) -> None:
    """Whatever its headers are, the reason is valid and the size is at least that of the value."""
    reject = parse_reject(value, headers)

    assert is_reason(reject.reason)
    assert len(reject.value) <= reject.size
    assert reject.is_cut == ("cut" in dict(headers))
    assert reject.index >= 0


def test_a_record_without_headers_has_the_reason_unknown() -> None:
    """It is listed and can be replayed by that reason."""
    assert parse_reject(b"{}", []) == Reject(value=b"{}", reason=UNKNOWN, detail="", size=2, index=0)
    assert parse_reject(b"{}", [("cut", b"1")]).size == 3
    assert [parse_reject(b"", [("index", b"9" * n)]).index for n in (18, 19)] == [10**18 - 1, 0]


def test_the_kafka_group_of_a_replay_is_never_that_of_a_group() -> None:
    """A group's committed offsets carry heads, and a replay must not overwrite them."""
    assert Names("x").replay("time") == "x.baton.rejected.time"
    assert Names("x").kafka_group("rejected") != Names("x").replay("time")


def test_rejects_expire_before_the_offsets_of_their_replays() -> None:
    """Kafka keeps an idle group's offsets for 7 days; a segment expires with its newest record."""
    configs = rejected_topic(Names()).configs
    week_ms = 7 * 86_400_000

    assert int(configs["retention.ms"]) + int(configs["segment.ms"]) < week_ms
    assert configs["message.timestamp.type"] == "LogAppendTime"
