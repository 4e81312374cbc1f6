"""`baton sessions` on real Kafka: the newest committed sessions, filtered, bounded, and followed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from aiokafka import AIOKafkaProducer
from click.testing import CliRunner, Result

from cli.kafka.sessions import open_sessions
from cli.main import cli
from shared.model.names import Names
from shared.model.sessions import Session, encode_session

HOUR_MS = 3_600_000
NOON = 1_700_049_600_000


def record(key: str, number: int) -> bytes:
    """A session's record."""
    data = [b'{"key":"%b","data":%d}' % (key.encode(), number)]
    times = dict.fromkeys(("first_time", "last_time", "opened_at", "closed_at"), NOON + number)
    session = Session(
        id=f"{number:032x}",
        group="default",
        key=key,
        stream=number % 2,
        epoch=1,
        first_offset=number,
        last_offset=number,
        fragments=1,
        bytes=len(data[0]),
        reason="gap",
        data=[],
        **times,
    )
    return encode_session(session, data)


@contextlib.asynccontextmanager
async def transactions(kafka: str, names: Names) -> AsyncIterator[AIOKafkaProducer]:
    """A transactional producer, like that of a stream's owner."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=f"{names.namespace}.test")
    async with producer:
        yield producer


async def deliver(
    producer: AIOKafkaProducer, names: Names, *numbered: tuple[str, int], is_aborted: bool = False
) -> None:
    """One transaction with these sessions, each an hour after the one before."""
    await producer.begin_transaction()
    for key, number in numbered:
        await producer.send_and_wait(
            names.sessions("default"),
            record(key, number),
            partition=number % 2,
            timestamp_ms=NOON + number * HOUR_MS,
        )
    await (producer.abort_transaction() if is_aborted else producer.commit_transaction())


async def baton(kafka: str, names: Names, *arguments: str) -> Result:
    """Runs `baton sessions …` on this Kafka."""
    environment = {"BATON_KAFKA": kafka, "BATON_NAMESPACE": names.namespace}
    run = CliRunner().invoke
    return await asyncio.to_thread(run, cli, ["sessions", *arguments], env=environment)


async def test_the_newest_committed_sessions_are_shown(kafka: str, names: Names) -> None:
    """Oldest first and at most `--limit`, of a key or since a time; never one of an aborted transaction."""
    async with transactions(kafka, names) as producer:
        for number in range(60):
            await deliver(producer, names, (f"key{number % 3}", number))
        await deliver(producer, names, ("key0", 60), ("key1", 61), is_aborted=True)

    async def numbers(*arguments: str) -> list[int]:
        answer = await baton(kafka, names, "-o", "json", *arguments)
        return [int(one["id"], 16) for one in json.loads(answer.stdout)["sessions"]]

    everything = ("--since", "2020-01-01T00:00:00Z")
    assert await numbers(*everything) == list(range(40, 60))
    assert await numbers(*everything, "-n", "1000") == list(range(60))
    assert await numbers(*everything, "--key", "key1", "-n", "3") == [52, 55, 58]
    assert await numbers("--since", "2023-11-17T12:00:00Z") == list(range(48, 60))
    assert await numbers("--since", "1h") == []

    async with open_sessions(kafka, names.sessions("default")) as log:
        every = [int(one.session.id, 16) async for one in log.everything()]
    assert every == [*range(0, 60, 2), *range(1, 60, 2)]

    one = json.loads((await baton(kafka, names, *everything, "-n", "1", "-o", "json")).stdout)["sessions"][0]
    assert one["data"] == [{"key": "key2", "data": 59}]
    assert one["delivered_at"] == NOON + 59 * HOUR_MS
    table = (await baton(kafka, names, *everything, "-n", "1")).stdout
    assert {f"{59:032x}", "key2", "gap"} <= set(table.split())
    assert "no session was delivered" in (await baton(kafka, names)).stdout


async def test_following_shows_each_new_session_when_its_transaction_commits(
    kafka: str, names: Names
) -> None:
    """Once each and none of an aborted transaction, beginning where the newest ones end."""
    async with transactions(kafka, names) as producer, open_sessions(kafka, names.sessions("default")) as log:
        await deliver(producer, names, ("a", 1), ("a", 2))
        await deliver(producer, names, ("a", 3), is_aborted=True)
        await deliver(producer, names, ("a", 4))

        found: list[int] = []
        async with asyncio.timeout(30):
            async for batch in log.following():
                found += [int(one.session.id, 16) for one in batch]
                if len(found) == 3:
                    break
        assert await log.newest(5, 0) == []
        assert [one async for one in log.everything()] == []

    assert sorted(found) == [1, 2, 4]


async def test_a_group_without_topics_does_not_exist(kafka: str, names: Names) -> None:
    """The sentence names the namespace too, because that may be what is wrong."""
    answer = await baton(kafka, names, "--group", "nobody")

    assert answer.exit_code == 1
    assert str(answer.exception) == f"there is no group 'nobody' in the namespace {names.namespace!r}"
