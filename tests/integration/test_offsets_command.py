"""`baton offsets` on real Kafka, beside Kafka's own command: each reads what the other one writes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from click.testing import CliRunner, Result

from cli.main import cli
from cli.stack.jars.downloads import fetch_jars
from cli.stack.jars.java import find_java
from cli.stack.jars.lock import Use, class_path, jar_folder, read_lock
from shared.kafka.admin.catalog import TopicSpec
from shared.kafka.admin.topics import ensure_topics

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def tool(kafka: str) -> Tool:
    """Kafka's own command for consumer groups; returns what it prints."""
    fetch_jars("tools", quiet=True)
    uses: tuple[Use, ...] = ("kafka", "tools")
    path = os.pathsep.join(class_path(jar_folder(use), read_lock(use)) for use in uses)

    def run(*arguments: str | Path) -> str:
        argv = [find_java(), "-cp", path, TOOL, "--bootstrap-server", kafka, "--reset-offsets", *arguments]
        return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout

    return run


@pytest.fixture
async def topic(kafka: str, namespace: str) -> str:
    """A topic of two partitions, with five records in each."""
    name = f"{namespace}.work"
    await ensure_topics(kafka, [TopicSpec(name=name, partitions=2)], 1)
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for n in range(10):
            await producer.send_and_wait(name, b"x", partition=n % 2)
    return name


async def baton(kafka: str, *arguments: str | Path) -> Result:
    """Runs `baton offsets …` on this Kafka."""
    command = ["offsets", *map(str, arguments)]
    return await asyncio.to_thread(CliRunner().invoke, cli, command, env={"BATON_KAFKA": kafka})


async def test_files_go_there_and_back(kafka: str, topic: str, tool: Tool, tmp_path: Path) -> None:
    """What Kafka's command exports is what `export` prints, for one group and for two; each sets what the
    other one has written."""
    one, two, file = f"{topic}-one", f"{topic}-two", tmp_path / "offsets.csv"
    file.write_text(f"{one},{topic},0,3\n{one},{topic},1,5\n{two},{topic},1,0\n")
    assert (await baton(kafka, "import", file)).exit_code == 0

    ours = [(await baton(kafka, "export", *groups)).stdout for groups in ((one,), (one, two))]
    current = ("--all-topics", "--to-current", "--export", "--dry-run")
    theirs = [tool("--group", one, *current), tool("--group", one, "--group", two, *current)]
    assert [sorted(text.split()) for text in theirs] == [sorted(text.split()) for text in ours]

    file.write_text(f"{topic},0,1\n{topic},1,2\n")
    tool("--group", one, "--from-file", file, "--execute")
    shown = json.loads((await baton(kafka, "show", one, "-o", "json")).stdout)
    assert [(row["partition"], row["offset"], row["lag"]) for row in shown] == [(0, 1, 4), (1, 2, 3)]

    file.write_text(theirs[0])
    assert (await baton(kafka, "import", file, "--group", one)).exit_code == 0
    assert (await baton(kafka, "export", one)).stdout == ours[0]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("{topic},0,6", "holds the offsets 0 … 4"),
        ("{topic},2,0", "no partition 2"),
        ("nothing.{topic},0,0", "no partition 0 of a topic"),
        ("baton.default,{topic},0,0", "a group of Baton"),
    ],
)
async def test_what_would_do_harm_is_refused_as_a_whole(
    kafka: str, topic: str, tmp_path: Path, lines: str, why: str
) -> None:
    """Offsets outside of the log, and groups of Baton, which never go back. Nothing of the file is set."""
    file = tmp_path / "offsets.csv"
    file.write_text(f"{topic}-g,{topic},1,1\n" + lines.format(topic=topic))

    refused = await baton(kafka, "import", file, "--group", f"{topic}-g")
    shown = await baton(kafka, "show", f"{topic}-g")

    assert (refused.exit_code, why in str(refused.exception)) == (1, True)
    assert "has committed no offsets" in str(shown.exception)


async def test_a_group_with_members_is_not_set(kafka: str, topic: str, tmp_path: Path) -> None:
    """They would go on where they are, and commit over it."""
    file = tmp_path / "offsets.csv"
    file.write_text(f"{topic},0,1\n")
    group = f"{topic}-members"
    async with AIOKafkaConsumer(topic, bootstrap_servers=kafka, group_id=group) as consumer:
        await consumer.getmany(timeout_ms=1)
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=50)
        refused = await baton(kafka, "import", file, "--group", group)
    left = await baton(kafka, "import", file, "--group", group)

    assert (refused.exit_code, "has members" in str(refused.exception)) == (1, True)
    assert left.exit_code == 0
