"""The mirror's pure parts: the configuration, what copied sessions say of a copy, the plan of a take-over."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from cli.kafka.mirror.config import KEPT_HERE, MirrorOptions, client_settings, mirror_config
from cli.kafka.mirror.copied_sessions import CopiedStream
from cli.kafka.mirror.take_over import (
    CannotFollow,
    Copy,
    CopyStillGrows,
    Following,
    MakeGroup,
    MakeTable,
    NotACopy,
    SetTopic,
    StreamCopy,
    TopicFacts,
    Undecided,
    plan,
)
from cli.stack.jars.lock import read_lock
from cli.stack.mirror import with_passwords
from shared.kafka.connect.access import KafkaAccess
from shared.model.names import Names
from shared.model.start import GroupStart
from shared.zookeeper.stream_table import WrongNumberOfStreams

NAMES = Names()


# the configuration


def properties(**choices: object) -> dict[str, str]:
    """The printed properties, as Java reads them."""
    source, target = KafkaAccess(bootstrap="a:1"), KafkaAccess(bootstrap="b:2")
    options = {"source": source, "target": target, "names": NAMES} | choices
    text = mirror_config(MirrorOptions(**options))  # type: ignore[arg-type]
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: value.replace("\\\\", "\\") for name, _, value in (line.partition("=") for line in lines)}


@pytest.mark.parametrize(
    ("topic", "is_copied"),
    [
        ("fragments.0000", True),
        ("fragments.rejected", True),
        ("sessions", True),
        ("sessions.fraud", True),
        ("sessionsx", False),
        ("checkpoints.default", False),
        ("baton.events", False),
        ("queue.mail.log", False),
    ],
)
@pytest.mark.parametrize("namespace", ["", "x-1"])
def test_fragments_and_sessions_are_copied_and_nothing_else(
    topic: str, is_copied: bool, namespace: str
) -> None:
    """Checkpoints and queues name offsets, so a copy of them would be wrong."""
    names = Names(namespace)
    patterns = properties(names=names)["topics"].split(",")

    matches = [one for one in patterns if re.fullmatch(one, names.topic(topic))]

    assert bool(matches) == is_copied


@pytest.mark.parametrize(
    ("group", "is_copied"),
    [
        ("billing", True),
        ("baton.default", False),
        ("x.baton.default", False),
        ("baton.queue.mail", False),
        ("source-mm2", False),
    ],
)
def test_places_of_other_readers_are_copied_and_those_of_baton_are_not(group: str, is_copied: bool) -> None:
    """The metadata of Baton's committed offsets is a head, which names the source's offsets."""
    excluded = properties()["groups.exclude"].split(",")

    assert any(re.fullmatch(one, group) for one in excluded) != is_copied


def test_copies_keep_their_times_and_are_made_once() -> None:
    """The copy has the source's names and times, only what was committed, in transactions."""
    found = properties()

    assert found["replication.policy.class"].endswith("IdentityReplicationPolicy")
    assert re.escape("message.timestamp.type") in found["config.properties.exclude"].split(",")
    assert len(found["config.properties.exclude"].split(",")) == len(KEPT_HERE)
    assert found["source.consumer.isolation.level"] == "read_committed"
    assert found["target.exactly.once.source.support"] == "enabled"
    assert properties(same_offsets=True)["target.exactly.once.source.support"] == "disabled"
    assert found["sync.topic.acls.enabled"] == "false"


def test_passwords_are_never_printed(tmp_path: Path) -> None:
    """The properties name variables; `baton mirror run` sets those that are not set, escaped for Java."""
    secret = tmp_path / "password"
    secret.write_text('a"b\\c\n')
    access = KafkaAccess(
        bootstrap="a:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        user="mirror",
        password_file=str(secret),
        ca_file="/ca.pem",
    )

    found = properties(source=access)
    environment = with_passwords({"MIRROR_TARGET_PASSWORD": "own"}, access)

    assert "a" + '"b' not in json.dumps(found)
    assert 'password="${env:MIRROR_SOURCE_PASSWORD}"' in found["source.sasl.jaas.config"]
    assert found["source.ssl.truststore.location"] == "/ca.pem"
    assert found["config.providers"] == "env"
    assert environment == {"MIRROR_SOURCE_PASSWORD": 'a\\"b\\\\c', "MIRROR_TARGET_PASSWORD": "own"}
    assert client_settings(KafkaAccess(bootstrap="b:2"), "") == {"bootstrap.servers": "b:2"}


def test_the_lock_file_has_exactly_what_mirrormaker_needs_beside_kafka() -> None:
    """47 jars of 11 MB; none is Kafka's own already."""
    jars, kafka = read_lock("mirror"), {jar.file for jar in read_lock("kafka")}

    assert (len(jars), round(sum(jar.size_bytes for jar in jars) / 1e6, 1)) == (47, 10.9)
    assert not kafka & {jar.file for jar in jars}


# what copied sessions say


def session(key: str, first: int, last: int, *, opened_at: int | None = None, **more: object) -> bytes:
    """A delivered session of stream 0; the record at offset n has the time n."""
    fields = {"stream": 0, "key": key, "first_offset": first, "last_offset": last, "data": []} | more
    return json.dumps(fields | {"opened_at": first if opened_at is None else opened_at}).encode()


def copied(
    sessions: list[bytes], log: dict[int, str], *, first: int = 0, end: int | None = None
) -> CopiedStream:
    """A copy with these records: `key` or `key:id` by offset."""
    one = CopiedStream(0, first, max(log, default=-1) + 1 if end is None else end)
    for raw in sessions:
        one.add_session(raw)
    for offset, text in log.items():
        key, _, ident = text.partition(":")
        value = json.dumps({"key": key} | ({"id": ident} if ident else {})).encode()
        one.add_record(offset, key.encode(), value, offset)
    for raw in sessions:
        one.add_ids(raw)
    one.finish()
    return one


@pytest.mark.parametrize(
    ("sessions", "log", "delivered"),
    [
        ([session("a", 0, 2), session("b", 1, 1)], {0: "a", 1: "b", 2: "a"}, 3),
        ([session("a", 0, 2)], {0: "a", 1: "b", 2: "a", 3: "b"}, 1),
        ([], {0: "a"}, 0),
        # a session that names what was not copied is not delivered here
        ([session("a", 0, 0), session("b", 1, 9)], {0: "a", 1: "b", 2: "b"}, 1),
        # a repeat stands in no session
        ([session("a", 0, 0, data=[{"id": "1"}])], {0: "a:1", 1: "a:1", 2: "b"}, 2),
        ([session("a", 0, 0, data=[{"id": "1"}])], {0: "a:1", 1: "a:2", 2: "b"}, 1),
        # what other streams delivered says nothing
        ([session("a", 0, 0), session("b", 1, 1, stream=1)], {0: "a", 1: "b"}, 1),
    ],
)
def test_all_below_the_lowest_fragment_in_no_session_is_delivered(
    sessions: list[bytes], log: dict[int, str], delivered: int
) -> None:
    """So a group may start there at the latest."""
    found = copied(sessions, log)

    assert (found.fault, found.delivered) == ("", delivered)


@pytest.mark.parametrize(
    ("sessions", "log"),
    [
        ([session("a", 0, 1)], {0: "a", 2: "a"}),
        ([session("a", 0, 1)], {0: "a", 1: "b", 2: "a"}),
        ([session("a", 1, 1)], {0: "a", 1: "b"}),
        ([session("a", 0, 1, opened_at=7)], {0: "a", 1: "a"}),
        ([session("a", 0, 1, log=1)], {0: "a", 1: "a"}),
    ],
    ids=["an end of a transaction", "another key", "shifted", "another time", "another log"],
)
def test_a_session_that_names_another_record_shows_that_offsets_differ(
    sessions: list[bytes], log: dict[int, str]
) -> None:
    """Its offsets are the source's, so nobody can follow."""
    assert copied(sessions, log).fault


def test_a_session_from_before_the_copy_to_beyond_its_end_lets_nobody_follow() -> None:
    """It would be current, and cover records that are yet to come."""
    found = copied([session("a", 0, 9)], {5: "b"}, first=5)

    assert (
        "reaches beyond the end" in copied([session("b", 5, 5), session("a", 0, 9)], {5: "b"}, first=5).fault
    )
    assert found.delivered == 5


def test_poison_and_keyless_records_stand_in_no_session() -> None:
    """They hold no start back."""
    one = CopiedStream(0, 0, 3)
    one.add_record(0, None, b"{}", 0)
    one.add_record(1, b"a", b"poison", 1)
    one.add_record(2, None, b'{"time": 5}', 2)
    one.finish()

    assert (one.fault, one.delivered) == ("", 3)


# the plan


COPIED = TopicFacts(settings={"message.timestamp.type": "CreateTime", "min.insync.replicas": "1"}, replicas=3)
DONE = TopicFacts(
    settings={"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "2"}, replicas=3
)
KEPT = TopicFacts(settings={"message.timestamp.type": "CreateTime", "min.insync.replicas": "2"}, replicas=3)
STREAMS = {n: StreamCopy(first=0, end=10, at=7, delivered=5) for n in range(2)}


def copy(**known: object) -> Copy:
    """A copy of two streams and of the sessions of two groups."""
    topics = dict.fromkeys(
        ["fragments.0000", "fragments.0001", "fragments.rejected", "sessions", "sessions.b"], COPIED
    )
    return Copy(**({"names": NAMES, "topics": topics} | known))  # type: ignore[arg-type]


def test_groups_come_first_then_the_brokers_time_and_the_table_last() -> None:
    """Members start once there is a table, producers once topics have the broker's time."""
    found = plan(copy(streams=STREAMS), following=Following(follows="default", group="default-2"))

    assert [type(step) for step in found.steps] == [*[MakeGroup] * 3, *[SetTopic] * 5, MakeTable]
    over, _, made = found.steps[:3]
    assert isinstance(over, MakeGroup)
    assert isinstance(made, MakeGroup)
    assert (over.group, over.start.is_over) == ("default", True)
    assert (made.start.follows, made.start.offsets) == ("default", {0: 5, 1: 5})
    times = [step.topic for step in found.steps if isinstance(step, SetTopic) and len(step.changes) == 2]
    assert times == ["fragments.0000", "fragments.0001", "fragments.rejected"]


def test_a_crash_anywhere_leaves_exactly_the_rest() -> None:
    """Each step that was done is left out of the next plan, and a group's start is never made anew."""
    following = Following(follows="default", group="default-2")
    whole = plan(copy(streams=STREAMS), following=following).steps

    for done in range(len(whole) + 1):
        topics = dict(copy().topics)
        groups: dict[str, GroupStart | None] = {}
        table = None
        for step in whole[:done]:
            if isinstance(step, SetTopic):
                topics[step.topic] = DONE if "message.timestamp.type" in step.changes else KEPT
            elif isinstance(step, MakeGroup):
                groups[step.group] = step.start
            else:
                table = step.streams
        streams = {} if "default-2" in groups else STREAMS
        left = plan(copy(topics=topics, groups=groups, table=table, streams=streams), following=following)
        assert left.steps == whole[done:]


@pytest.mark.parametrize(
    ("to", "starts", "why"),
    [
        ("latest", [5, 5], ""),
        (4_000, [5, 5], "the fragment at 5 is in no session"),
        ("earliest", [0, 0], ""),
    ],
)
def test_a_group_starts_at_the_time_but_where_all_before_is_delivered(
    to: str | int, starts: list[int], why: str
) -> None:
    """The time lies at offset 7, and what began from 5 on was not delivered."""
    found = plan(copy(streams=STREAMS), following=Following(follows="default", group="c", to=to))

    assert [one.start for one in found.starts] == starts
    assert {one.why for one in found.starts} == {why}


def test_a_time_before_what_is_delivered_is_the_start() -> None:
    """From there on the new group makes its own sessions."""
    streams = {n: StreamCopy(first=0, end=10, at=2, delivered=5) for n in range(2)}

    found = plan(copy(streams=streams), following=Following(follows="default", group="c", to=1_000))

    assert [(one.start, one.why) for one in found.starts] == [(2, ""), (2, "")]


@pytest.mark.parametrize(
    ("known", "following", "error", "why"),
    [
        ({"topics": {}}, None, NotACopy, "there is no fragments.0000"),
        ({"topics": {"fragments.0001": COPIED}}, None, NotACopy, "there is no topic fragments.0000"),
        ({"copiers": 2}, None, CopyStillGrows, "stop them"),
        ({"undecided": ["fragments.0001"]}, None, Undecided, "transaction open in fragments.0001"),
        ({"table": 3}, None, WrongNumberOfStreams, "there should be 3"),
        ({}, ("nobody", "c"), CannotFollow, "no sessions of group 'nobody'"),
        ({}, ("default", "b"), CannotFollow, "there is or was a group 'b'"),
        ({"groups": {"c": None}}, ("default", "c"), CannotFollow, "there is or was a group 'c'"),
        (
            {
                "streams": STREAMS
                | {1: StreamCopy(first=0, end=9, at=None, delivered=0, fault="other record")}
            },
            ("default", "c"),
            CannotFollow,
            "stream 1: other record.*alone",
        ),
    ],
)
def test_what_would_lose_or_double_is_refused(
    known: dict[str, object], following: tuple[str, str] | None, error: type[Exception], why: str
) -> None:
    """Nothing was changed then."""
    wanted = Following(follows=following[0], group=following[1]) if following else None

    with pytest.raises(error, match=why):
        plan(copy(**known), following=wanted)


def test_a_number_of_streams_that_was_asked_for_must_be_there() -> None:
    """The copy may lack the last topics, which nothing else shows."""
    with pytest.raises(WrongNumberOfStreams):
        plan(copy(), streams=3)


def test_repeated_take_overs_leave_a_working_baton_alone() -> None:
    """Groups that have begun to work here are not over, though their sessions are here."""
    topics = dict(copy().topics) | {"sessions.c": KEPT}
    topics |= {topic: DONE if "fragments" in topic else KEPT for topic in topics}
    over = GroupStart(follows=None, offsets={0: 0, 1: 0}, is_over=True)
    groups = dict(itertools.zip_longest(["default", "b"], [over, over])) | {"c": None}

    assert plan(copy(topics=topics, groups=groups, table=2)).steps == []
