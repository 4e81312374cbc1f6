"""`baton doctor` against real servers: nothing to say where all is well, and each planted fault is found."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.main import cli
from shared.kafka.admin.catalog import change_settings, read_settings
from shared.kafka.connect.cluster import Cluster
from shared.model.group import GroupSettings
from shared.model.names import Names
from shared.model.routing import initial_table
from shared.zookeeper.connection import ZooKeeper
from tests.servers import free_port
from tests.unit.cli.commands.test_show import ANSWERS
from tests.unit.cli.fake_services import InMemoryControl, served
from tests.waiting import until

FAULTS = {
    "fragments.0001": ("message.timestamp.type", "CreateTime"),
    "checkpoints.default": ("retention.ms", "3600000"),
    "sessions": ("min.insync.replicas", "2"),
}
"""Planted in topics: times by clients, checkpoints that expire, a topic that nobody can write."""


@pytest.fixture
async def znodes(zookeeper: str, names: Names) -> AsyncIterator[ZooKeeper]:
    """A client, with a stream table and a group of one member."""
    async with ZooKeeper(zookeeper, 5.0) as client:
        await client.make_path(names.members("default"))
        await client.create(names.table, initial_table(2).encode())
        await client.set(names.group("default"), GroupSettings().encode())
        await client.create(names.member("default", "a"), b"{}")
        yield client


async def doctor(kafka: str, zookeeper: str, url: str, names: Names, home: Path, *more: str) -> Result:
    """Runs it on these servers."""
    options = ["--kafka", kafka, "--zookeeper", zookeeper, "--url", url, "--home", str(home)]
    arguments = ["doctor", *options, "--namespace", names.namespace, *more]
    return await asyncio.to_thread(CliRunner().invoke, cli, arguments)


def found(result: Result) -> list[dict[str, Any]]:
    """The findings of `-o json`."""
    return list(json.loads(result.stdout)["findings"])


async def test_faults_of_topics_and_znodes_are_found_and_their_repair_works(
    kafka: str, zookeeper: str, znodes: ZooKeeper, names: Names, tmp_path: Path
) -> None:
    """First nothing is wrong with them, then each fault is named; what `todo` says repairs a topic."""
    topics = {names.topic(name): fault for name, fault in FAULTS.items()}
    control = InMemoryControl({name: {**answer, "stale_ms": 5} for name, answer in ANSWERS.items()})
    control.answers["/livez"] = {}

    def about_servers(findings: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        # the state of this machine, and of the fake's members, is not what is tested here
        prefixes = ("zookeeper", "stream table", "group", "kafka", "topic")
        return {one["about"]: one for one in findings if one["about"].startswith(prefixes)}

    with served(control.answer) as url:
        before = about_servers(found(await doctor(kafka, zookeeper, url, names, tmp_path, "-o", "json")))

        async with Cluster(kafka) as cluster:
            for topic, (name, value) in topics.items():
                await change_settings(cluster, topic, {name: value})

            async def are_known() -> bool:
                now = await read_settings(cluster, list(topics))
                return all(now[topic][name].value == value for topic, (name, value) in topics.items())

            await until(are_known, within_s=10)
        await znodes.set(names.table, b"not a table")
        faulty = await doctor(kafka, zookeeper, url, names, tmp_path, "-o", "json")
        told = await doctor(kafka, zookeeper, url, names, tmp_path)

        wrong = {one["about"]: one for one in found(faulty) if one["state"] == "wrong"}
        for topic in topics:
            words = wrong[f"topic {topic}"]["todo"].split()
            await asyncio.to_thread(
                CliRunner().invoke, cli, [*words[1:], "--kafka", kafka, "--namespace", names.namespace]
            )

        async def are_repaired() -> bool:
            after = found(await doctor(kafka, zookeeper, url, names, tmp_path, "-o", "json"))
            return not any(f"topic {topic}" == one["about"] for one in after for topic in topics)

        await until(are_repaired, within_s=30)

    assert {about for about, one in before.items() if one["state"] != "ok"} == set()
    assert {
        "group default",
        f"zookeeper {zookeeper}",
        f"stream table {names.table}",
        "topics",
    } <= before.keys()
    assert faulty.exit_code == told.exit_code == 1
    assert {f"topic {topic}" for topic in topics} | {f"stream table {names.table}"} <= wrong.keys()
    assert f"WRONG   stream table {names.table}: " in told.stdout
    assert f"→ baton kafka settings {names.sessions('default')} min.insync.replicas=1" in told.stdout


async def test_servers_that_are_not_there_are_named(names: Names, tmp_path: Path) -> None:
    """What depends on them is not checked, and says so; nothing ends the command early."""
    nobody = f"127.0.0.1:{free_port()}"

    result = await doctor(nobody, nobody, f"http://{nobody}", names, tmp_path, "-o", "json")

    states = {one["about"]: one["state"] for one in found(result)}
    assert result.exit_code == 1
    assert states[f"zookeeper {nobody}"] == "wrong"
    assert {states["znodes"], states["topics"], states["control"]} == {"unknown"}
    assert "java" in states
