"""Logs are made anew under a running group, and a rewind ends their state `rewind`, on real servers."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import msgspec
from aiokafka import AIOKafkaProducer

from shared.model.fragments import encode_marker
from tests.e2e.chaos_operator import create_anew
from tests.e2e.fleet import END_OF_TIME_MS, SETTINGS, Fleet, fleet, new_seed
from tests.e2e.groups import ask, keep_logs, wrong_in
from tests.e2e.stack import baton
from tests.e2e.visits import Visits
from tests.waiting import until

STREAMS = 3
SHORT, GROWN = 0, 1
"""Streams whose logs are made anew; the second one grows beyond where it had been read to."""
SECOND = 10
QUIET = msgspec.structs.replace(SETTINGS, gap_ms=8_000, lateness_ms=4_000)


async def states(one: Fleet) -> dict[int, str]:
    """The states of the first group's streams."""
    rows = (await ask(one, "GET", "/streams")).json().get("streams", [])
    return {row["stream"]: row["state"] for row in rows}


async def write_beyond(one: Fleet, visits: Visits, stream: int, end: int) -> None:
    """Appends fragments to one stream until its log has more than `end` records."""
    async with AIOKafkaProducer(bootstrap_servers=one.where.kafka, enable_idempotence=True) as producer:
        offset = -1
        while offset < end:
            key, value = visits.next()
            if one.table.stream_for(key.encode()) == stream:
                topic = one.where.names.fragments(stream)
                sent = await producer.send_and_wait(topic, value=value, key=key.encode(), partition=0)
                offset = sent.offset


async def end_sessions(one: Fleet, stream: int) -> int:
    """Ends what is open in a stream; the offset of the marker that does."""
    async with AIOKafkaProducer(bootstrap_servers=one.where.kafka) as producer:
        topic, marker = one.where.names.fragments(stream), encode_marker(END_OF_TIME_MS)
        offset: int = (await producer.send_and_wait(topic, value=marker, partition=0)).offset
        return offset


async def test_a_rewind_ends_the_state_of_streams_whose_logs_were_made_anew(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """`baton rewind --to latest`, members for the new group, `baton groups promote`: no other repair is
    needed. All sessions of the old logs and of the new ones are current, each fragment in exactly one."""
    visits, before = Visits(random.Random(new_seed())), tmp_path / "before.json"
    async with fleet(kafka, zookeeper, namespace, tmp_path, QUIET, streams=STREAMS) as one:
        one.start_control()
        one.start_consumer(0)
        await one.write(visits, 600)
        ends = {n: len(await one.where.log(n)) - 1 for n in range(STREAMS)}
        ends |= {n: await end_sessions(one, n) for n in (SHORT, GROWN)}
        await one.committed(ends)
        await one.ready("control")
        await keep_logs(one, before)

        await create_anew(one.where, [SHORT, GROWN])
        await one.write(visits, 60)
        await write_beyond(one, visits, GROWN, ends[GROWN] + 50)
        found: dict[int, str] = {}

        async def are_stopped() -> bool:
            found.update(await states(one))
            return found == {SHORT: "rewind", GROWN: "rewind", 2: "running"}

        await until(are_stopped, lambda: f"{found}\n{one.tail()}")
        url = f"http://127.0.0.1:{one.port_of('control')}"
        code, out, err = await baton("rewind", "--to", "latest", "--reason", "the log is gone", "--url", url)
        assert code == 0, err
        one.start_consumer(SECOND, group="default-2")
        await one.ready(f"consumer-{SECOND}")
        await one.write(visits, 300)
        second = Fleet(replace(one.where, group="default-2"), zookeeper, tmp_path, QUIET)
        second.table = one.table
        await second.close_all()
        await promoted(url)

        assert "default-2" in out
        starts = (await ask(one, "GET", "/groups/default/current")).json()
        assert (starts["group"], starts["follows"]) == ("default-2", ["default"])
        assert [cut["below"] for cut in starts["current"][1]["cuts"]][:2] == [None, None]
        assert await wrong_in(one, "default", lost=before) == []
        assert {head.log for head in (await second.where.heads()).values()} == {0}


async def promoted(url: str) -> None:
    """Returns once the new group has the name of the one that it follows."""
    last = ""

    async def is_so() -> bool:
        nonlocal last
        code, _, last = await baton("groups", "promote", "default-2", "--to", "default", "--url", url)
        return code == 0

    await until(is_so, lambda: last)
