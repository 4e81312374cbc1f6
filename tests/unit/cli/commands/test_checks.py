"""The checks of `baton doctor`, one by one: what is right, what is wrong, and what cannot be said."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.commands.checks.findings import Finding, checked
from cli.commands.checks.kafka import expected_topics, judge_missing, judge_retention, judge_topic
from cli.commands.checks.machine import LEAST_FREE_BYTES, LEAST_FREE_SHARE, check_disk, check_java, check_lake
from cli.commands.checks.services import (
    MOST_SKEW_S,
    STALE_MS,
    ahead_s,
    check_control,
    check_queues,
    judge_clock,
    judge_view,
)
from cli.commands.checks.zookeeper import check_servers, judge_servers
from cli.stack.jars.java import find_java
from shared.errors import KafkaUnavailable, Unavailable
from shared.kafka.admin.catalog import Replicas, TopicSpec
from shared.model.names import Names
from tests.servers import free_port
from tests.tables import write_table
from tests.unit.cli.commands.test_show import ANSWERS
from tests.unit.cli.fake_services import InMemoryControl, served

GOOD = {"cleanup.policy": "delete", "max.message.bytes": "2097152", "retention.ms": "-1"}
SPEC = TopicSpec(name="t", configs=GOOD)
SERVES = "Zookeeper version: 3.9.5-1, built\nMode: follower\n"
NO_LEADER = "This ZooKeeper instance is not currently serving requests\n"
REFUSED = "srvr is not executed because it is not in the whitelist.\n"


def states(findings: Sequence[Finding]) -> list[str]:
    """What each finding says of its subject."""
    return [finding.state for finding in findings]


def partitions(count: int = 1, leader: int = 1, replicas: int = 3, in_sync: int = 3) -> list[Replicas]:
    """So many partitions alike."""
    return [Replicas(leader=leader, replicas=replicas, in_sync=in_sync)] * count


@pytest.mark.parametrize("error", [KafkaUnavailable("nobody"), OSError(2, "no such file"), TimeoutError()])
async def test_a_check_that_cannot_run_says_so(error: Exception) -> None:
    """Its subject may be well; the others are still checked."""

    async def check() -> list[Finding]:
        raise error

    (finding,) = await checked("kafka", check)

    assert (finding.about, finding.state) == ("kafka", "unknown")
    assert finding.says.startswith("the check could not run: ")
    assert len(finding.says) > len("the check could not run: ")


async def test_a_bug_in_a_check_is_not_swallowed() -> None:
    """Only what the world can do is a finding."""

    async def check() -> list[Finding]:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        await checked("kafka", check)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([SERVES], ["ok"]),
        ([""], ["wrong"]),
        ([NO_LEADER], ["wrong"]),
        ([REFUSED], ["unknown"]),
        ([SERVES, SERVES, SERVES], ["ok", "ok", "ok", "ok"]),
        ([SERVES, SERVES, ""], ["ok", "ok", "wrong", "wrong"]),
        ([SERVES, SERVES], ["ok", "ok", "wrong"]),
        ([SERVES, NO_LEADER, ""], ["ok", "wrong", "wrong", "wrong"]),
    ],
)
def test_a_zookeeper_server_serves_or_not(answers: list[str], expected: list[str]) -> None:
    """An ensemble is right if it can lose one more server."""
    findings = judge_servers({f"z{n}:2181": answer for n, answer in enumerate(answers)})

    assert states(findings) == expected
    assert all(finding.todo for finding in findings if finding.state != "ok")


async def test_a_server_that_does_not_listen_is_wrong() -> None:
    """So is an address that is none."""
    assert states(await check_servers(f"127.0.0.1:{free_port()}")) == ["wrong"]
    assert states(await check_servers("nonsense")) == ["wrong"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, None),
        ({"max.message.bytes": "4194304"}, None),
        ({"max.message.bytes": "1048588"}, "max.message.bytes is 1048588, not 2097152"),
        ({"cleanup.policy": "compact"}, "cleanup.policy is compact, not delete"),
        ({"retention.ms": "1000"}, "retention.ms is 1000, not -1"),
        ({"min.insync.replicas": "1"}, "min.insync.replicas is 1: a record can be acknowledged"),
        ({"min.insync.replicas": "4"}, "min.insync.replicas is 4, but there are 3 replicas"),
    ],
)
def test_a_topic_has_the_settings_that_baton_needs(settings: Mapping[str, str], says: str | None) -> None:
    """The finding names the command that repairs it."""
    found = judge_topic(SPEC, partitions(), {**GOOD, "min.insync.replicas": "2", **settings}, brokers=3)

    assert [finding.says.startswith(says or "") for finding in found] == [True] * (says is not None)
    assert all(finding.todo.startswith("baton kafka settings t ") for finding in found)


@pytest.mark.parametrize(
    ("topic", "creator"),
    [
        ("fragments.0003", "a producer"),
        ("sessions", "a member of its group"),
        ("checkpoints.other", "a member of its group"),
    ],
)
def test_a_missing_topic_is_created_by_those_who_need_it_first(topic: str, creator: str) -> None:
    """A member would wait for its fragments topics forever: producers create them, when they start."""
    finding = judge_missing(topic, Names())

    assert topic in expected_topics(Names(), {"fragments.0003", "checkpoints.default", "checkpoints.other"})
    assert finding.about == f"topic {topic}"
    assert finding.todo == f"restart {creator}, which creates it if it has the right"


@pytest.mark.parametrize(
    ("brokers", "found", "expected"),
    [
        (3, partitions(), []),
        (1, partitions(replicas=1, in_sync=1), []),
        (5, partitions(replicas=3), []),
        (3, partitions(replicas=2, in_sync=2), ["2 replicas on 3 brokers"]),
        (3, partitions(in_sync=2), ["1 of 1 partitions have replicas that are not in step"]),
        (3, partitions(in_sync=1), ["1 of 1 partitions cannot be written"]),
        (3, partitions(leader=-1, in_sync=0), ["1 of 1 partitions cannot be written"]),
        (
            3,
            [*partitions(3), *partitions(in_sync=2)],
            ["1 of 4 partitions have replicas that are not in step"],
        ),
    ],
)
def test_a_topic_has_its_replicas(brokers: int, found: list[Replicas], expected: list[str]) -> None:
    """As many as the brokers allow, up to three; all of them in step."""
    insync = str(min(2, min(one.replicas for one in found)))

    findings = judge_topic(SPEC, found, {**GOOD, "min.insync.replicas": insync}, brokers)

    assert [finding.says for finding in findings] == expected


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 9), st.integers(-1, 3), st.integers(1, 9))
def test_a_topic_without_findings_outlives_a_broker(
    brokers: int, replicas: int, in_sync: int, leader: int, insync: int
) -> None:
    """It can be written, and where there are several brokers at least two have each record."""
    found = partitions(
        leader=leader, replicas=min(replicas, brokers), in_sync=min(in_sync, replicas, brokers)
    )

    if not judge_topic(SPEC, found, {**GOOD, "min.insync.replicas": str(insync)}, brokers):
        assert leader >= 0
        assert found[0].in_sync >= insync
        assert brokers == 1 or insync >= 2


def test_streams_are_kept_equally_long() -> None:
    """The few differ from the many."""
    kept = {f"fragments.{n:04d}": {"retention.ms": "1000" if n == 2 else "604800000"} for n in range(4)}

    (finding,) = judge_retention(kept)

    assert finding.about == "topic fragments.0002"
    assert finding.todo == "baton kafka settings fragments.0002 retention.ms=604800000"


def test_the_topics_there_should_be_follow_from_those_there_are() -> None:
    """A hole in the streams and a group without its sessions are found; events may yet have to happen."""
    names = Names("x")
    existing = {"x.fragments.0000", "x.fragments.0002", "x.checkpoints.default", "fragments.0009", "other"}

    assert set(expected_topics(names, existing)) == {
        *(f"x.fragments.{n:04d}" for n in range(3)),
        "x.sessions",
        "x.checkpoints.default",
    }
    assert "x.baton.events" in expected_topics(names, existing | {"x.baton.events"})


@pytest.mark.parametrize(
    ("total", "free", "state"),
    [
        (100 * LEAST_FREE_BYTES, 50 * LEAST_FREE_BYTES, "ok"),
        (2 * LEAST_FREE_BYTES, LEAST_FREE_BYTES - 1, "wrong"),
        (100 * LEAST_FREE_BYTES, int(100 * LEAST_FREE_BYTES * LEAST_FREE_SHARE) - 1, "wrong"),
    ],
)
async def test_a_disk_has_room(tmp_path: Path, total: int, free: int, state: str) -> None:
    """Of the nearest folder that exists, since a home need not exist yet."""
    asked: list[Path] = []

    def usage(path: Path) -> tuple[int, int, int]:
        asked.append(path)
        return total, total - free, free

    (finding,) = await check_disk(tmp_path / "not" / "yet", usage)

    assert (asked, finding.state) == ([tmp_path], state)


async def test_java_is_found_or_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the rule of the local stack, which has to start it."""
    find_java.cache_clear()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    try:
        assert states(await check_java()) == ["wrong"]
    finally:
        find_java.cache_clear()


def test_a_clock_agrees_to_what_http_shows_of_it() -> None:
    """Ahead or behind; a service that does not state its time is unknown."""
    assert judge_clock("a", 0.9).state == "ok"
    assert judge_clock("a", None).state == "unknown"
    assert "ahead of" in judge_clock("a", MOST_SKEW_S + 1).says
    assert "behind" in judge_clock("a", -MOST_SKEW_S - 1).says
    assert ahead_s("Thu, 01 Jan 1970 00:01:00 GMT", 60.5) == 0


def test_an_old_view_is_wrong() -> None:
    """Control goes on answering from its last reading, so nobody else would notice."""
    assert judge_view(STALE_MS).state == "ok"
    assert judge_view(STALE_MS + 1).state == "wrong"


async def test_control_names_silent_members_and_missing_producers() -> None:
    """Members and producers are also asked for their time; here nobody is at their addresses."""
    answers: dict[str, Any] = {name: {**answer, "stale_ms": 5} for name, answer in ANSWERS.items()}
    control = InMemoryControl({**answers, "/producers": {"producers": []}, "/livez": {}})
    with served(control.answer) as url:
        findings = await check_control(url)

    found = {finding.about: finding.state for finding in findings}
    assert found["member consumer-1"] == "wrong"
    assert found["producers"] == "wrong"
    assert found["control's view"] == "ok"
    assert found[f"control {url}"] in ("ok", "unknown")


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([], {"queues": "ok"}),
        ([{"queue": "mail", "ready": 1, "dead": 0}], {"queues": "ok"}),
        (
            [{"queue": "mail", "ready": 1, "dead": 3}, {"queue": "fax", "ready": 1, "dead": 0}],
            {"queue mail": "wrong"},
        ),
        ([{"queue": "mail", "ready": None, "dead": None}], {"queues": "wrong"}),
    ],
)
async def test_dead_letters_and_silent_workers_are_wrong(
    rows: list[dict[str, Any]], found: dict[str, str]
) -> None:
    """Each queue with dead letters has a line; a control that knows no worker is no fault."""
    control = InMemoryControl({"/queues": {"queues": rows, "next": None, "stale_ms": 5}})
    with served(control.answer) as url:
        findings = await check_queues(url)

    assert {finding.about: finding.state for finding in findings} == found


async def test_a_control_that_is_not_there_is_no_finding_of_its_own() -> None:
    """`checked` reports it, with the address."""
    url = f"http://127.0.0.1:{free_port()}"

    with pytest.raises(Unavailable):
        await check_control(url)


async def test_the_tables_of_a_lake_are_opened_and_read(tmp_path: Path) -> None:
    """A missing file and an unreadable log are wrong; a lake without tables is no fault."""
    assert states(await check_lake(str(tmp_path / "none"), "")) == ["ok"]

    for name in ("good", "holed", "broken"):
        write_table(tmp_path, name, pa.table({"n": [1]}))
    next((tmp_path / "holed").rglob("*.parquet")).unlink()
    for log in (tmp_path / "broken" / "_delta_log").glob("*.json"):
        log.write_text("no json")

    findings = await check_lake(str(tmp_path), "")

    assert {finding.about: finding.state for finding in findings} == {
        "table good": "ok",
        "table holed": "wrong",
        "table broken": "wrong",
    }


async def test_without_the_packages_the_lake_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The image of the command line has none of them."""
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "services.control.tables.lake":
            raise ImportError(name="deltalake")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)

    (finding,) = await check_lake("lake", "")

    assert (finding.state, "deltalake is not installed" in finding.says) == ("unknown", True)
