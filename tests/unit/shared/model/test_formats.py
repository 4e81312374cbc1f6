"""Heads, sessions, group settings and names survive a round trip through their formats."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import InvalidInput
from shared.model.group import GroupSettings, parse_group_settings
from shared.model.head import Counts, Head, parse_head
from shared.model.names import Names, is_group_name, is_namespace
from shared.model.sessions import Session, encode_session, parse_session, session_id

BIG = 2**62
numbers = st.integers(0, BIG)


@given(
    values=st.lists(numbers, min_size=9, max_size=9),
    counts=st.lists(numbers, min_size=10, max_size=10),
)
def test_a_head_is_read_as_it_was_committed_and_fits_kafka(values: list[int], counts: list[int]) -> None:
    """Kafka accepts at most 4,096 bytes of offset metadata."""
    epoch, seq, w, a, ck, last, safe, oldest, silent_to = values
    head = Head(
        epoch=epoch,
        seq=seq,
        position=safe + 1,
        safe_offset=safe,
        w=w,
        a=a,
        checkpoint_from=ck,
        newest=last,
        oldest=oldest,
        silent_to=silent_to,
        counts=Counts(**dict(zip(Counts.__struct_fields__, counts, strict=True))),
    )

    assert parse_head(safe, head.metadata()) == head
    assert len(head.metadata()) < 1024


def test_the_head_has_the_fields_of_the_protocol() -> None:
    """Kafka's tools show them to people."""
    metadata = json.loads(
        Head(epoch=3, seq=9, position=12, safe_offset=4, w=5, a=6, checkpoint_from=0, newest=7).metadata()
    )

    assert metadata == {
        "epoch": 3, "seq": 9, "position": 12, "W": 5, "A": 6, "ck": 0, "last": 7, "counts": {}
    }  # fmt: skip


def test_a_head_says_how_to_recognize_the_log_and_which_it_is() -> None:
    """Versions that do not know these fields ignore them, and write heads without them."""
    head = Head(
        epoch=3, seq=9, position=12, safe_offset=4, appended=1_700_000_000_000, log=52, oldest=-1, closing=7
    )
    older = '{"epoch":3,"seq":9,"position":12,"W":-1,"A":-1,"ck":-1,"last":-1,"counts":{}}'

    assert (
        json.loads(head.metadata()).items()
        >= {"appended": 1_700_000_000_000, "log": 52, "oldest": -1, "closing": 7}.items()
    )
    assert parse_head(4, head.metadata()) == head
    assert parse_head(4, older) == msgspec.structs.replace(head, appended=-1, log=0, oldest=None, closing=-1)


@pytest.mark.parametrize("metadata", ["", "{}", "none", '{"epoch":1}'])
def test_an_offset_without_a_head_is_rejected(metadata: str) -> None:
    """Another program committed it, so it must not be used."""
    with pytest.raises(InvalidInput, match="carries no head"):
        parse_head(5, metadata)


def test_a_head_with_a_position_below_its_offset_is_rejected() -> None:
    """`0 <= safe_offset <= position` always holds."""
    head = Head(epoch=1, seq=1, position=12, safe_offset=12)

    assert parse_head(12, head.metadata()) == head
    with pytest.raises(InvalidInput, match="position 12 is below its offset 13"):
        parse_head(13, head.metadata())


@given(
    key=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50),
    data=st.lists(
        st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9), max_size=3), min_size=1
    ),
)
def test_a_session_carries_its_fragments_as_they_were_posted(
    key: str, data: list[dict[str, int | str]]
) -> None:
    """`data` has exactly the posted bytes, including spaces."""
    raws = [json.dumps(fields, indent=1).encode() for fields in data]
    session = Session(
        id=session_id("g", 3, key, 7),
        group="g",
        key=key,
        stream=3,
        epoch=1,
        first_offset=7,
        last_offset=9,
        first_time=1,
        last_time=2,
        opened_at=3,
        closed_at=4,
        fragments=len(raws),
        bytes=sum(map(len, raws)),
        reason="gap",
        data=[],
    )

    raw = encode_session(session, raws)
    found = parse_session(raw)

    assert msgspec.structs.replace(found, data=[]) == session
    assert [bytes(fragment) for fragment in found.data] == raws
    assert json.loads(raw)["data"] == json.loads(b"[" + b",".join(raws) + b"]")


def test_the_id_of_a_session_is_stable_and_unique() -> None:
    """It depends on group, stream, key, first offset and the log's number, and on nothing else. The first log
    has none."""
    assert session_id("default", 0, "visitor-1", 7) == "efe7f956ff60e2a9957663374423d4f3"
    ids = {
        session_id(group, stream, key, offset, log)
        for log in (0, 11)
        for group in ("a", "b")
        for stream in (1, 11)
        for key in ("k", "1\nk", "k\n1")
        for offset in (1, 11)
    }
    assert len(ids) == 48


@given(st.builds(GroupSettings, gap_ms=numbers, delivery=st.sampled_from(["exactly_once", "at_most_once"])))
def test_the_settings_of_a_group_are_read_as_they_were_written(settings: GroupSettings) -> None:
    """The audit reads what the first member has written."""
    assert parse_group_settings(settings.encode()) == settings
    assert settings.differences(settings) == []


@given(stream=st.integers(0, 4095), namespace=st.sampled_from(["", "a", "a-b"]))
def test_a_fragments_topic_belongs_to_a_stream_of_its_own_namespace(stream: int, namespace: str) -> None:
    """Without a stream table only the topics of its own Baton determine the number of streams."""
    names = Names(namespace)

    assert names.stream_of(names.fragments(stream)) == stream
    assert Names("other").stream_of(names.fragments(stream)) is None


@pytest.mark.parametrize("namespace", ["", "x"])
def test_other_topics_do_not_belong_to_a_stream(namespace: str) -> None:
    """Not even the topic of rejected fragments, which starts alike."""
    names, prefix = Names(namespace), f"{namespace}." if namespace else ""

    assert names.rejected == f"{prefix}fragments.rejected"
    assert names.sessions("default") == f"{prefix}sessions"
    assert names.sessions("fraud") == f"{prefix}sessions.fraud"
    for topic in ("fragments", "fragments.1", "fragments.00001", "fragments.rejected", "sessions"):
        assert names.stream_of(prefix + topic) is None


def test_names_that_would_break_a_path_or_a_topic_are_rejected() -> None:
    """Groups and namespaces become parts of topics and znodes."""
    assert is_group_name("fraud_2-a")
    assert is_namespace("")
    for bad in ("", "A", "a/b", "a.b", "ä", "-a", "a" * 70):
        assert not is_group_name(bad)
        assert bad == "" or not is_namespace(bad)
