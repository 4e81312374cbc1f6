"""A copy takes over: services start on it, and what was copied is in exactly one current session.

`make mirror` runs the long tests, with MirrorMaker; the short one copies by hand.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from aiokafka import AIOKafkaConsumer

from cli.kafka.mirror.config import WORKERS
from cli.kafka.mirror.take_over import Undecided
from cli.stack.mirror import missing_jars
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.admin.topics import list_topics
from shared.kafka.connect.cluster import Cluster
from shared.model.group import GroupSettings
from shared.model.names import Names
from tests.e2e.fleet import PARTITIONS, SETTINGS, Fleet, fleet, new_seed
from tests.e2e.groups import ask, wrong_in
from tests.e2e.mirroring import (
    MirrorMaker,
    baton_mirror,
    copy_by_hand,
    create_copies,
    fleet_at,
    second_cluster,
    settings_of,
)
from tests.e2e.visits import Visits
from tests.servers import KafkaServer, ZooKeeperServer, temporary_home
from tests.waiting import DEADLINE_S, until

STREAMS = 3
QUIET: GroupSettings = msgspec.structs.replace(SETTINGS, gap_ms=8_000, lateness_ms=4_000)
CUT = 40
"""So many records of each stream are not copied in time."""


@pytest.fixture(scope="module")
def target() -> Iterator[tuple[str, str]]:
    """Addresses of the other cluster's Kafka and ZooKeeper."""
    with second_cluster() as (kafka, zookeeper):
        yield kafka.address, zookeeper.address


async def posted(one: Fleet, fragments: list[dict[str, object]]) -> tuple[int, str]:
    """Status and text of the producer's answer."""
    url = f"http://127.0.0.1:{one.port_of('producer')}/fragments"
    async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE_S) as http:
        try:
            answer = await http.post(url, json=fragments)
        except httpx.TransportError:
            return 0, ""
        return answer.status_code, answer.text


class Sender:
    """Posts visits to the producer, one request after another, and knows what was acknowledged."""

    def __init__(self, one: Fleet, visits: Visits) -> None:
        self.acknowledged: set[str] = set()
        self._one, self._visits = one, visits
        self.is_over = False

    async def run(self) -> None:
        """Posts until it is over; what was refused is not sent again."""
        while not self.is_over:
            batch = [
                json.loads(value) for _, value in (self._visits.next() for _ in range(20)) if b"{" in value
            ]
            if (await posted(self._one, batch))[0] == 200:
                self.acknowledged |= {fragment["id"] for fragment in batch}
            else:
                await asyncio.sleep(0.1)

    async def more(self, count: int) -> None:
        """Returns once so many more were acknowledged."""
        wanted = len(self.acknowledged) + count
        await until(lambda: len(self.acknowledged) >= wanted, lambda: f"not sent:\n{self._one.tail()}")


async def ids_in(one: Fleet) -> list[str]:
    """The ids of all fragments in the logs of a fleet."""
    logs = [await one.where.log(stream) for stream in range(one.where.streams)]
    values = [record.value for log in logs for record in log if record.key is not None]
    return [json.loads(value)["id"] for value in values]


async def source_with_sessions(one: Fleet, visits: Visits) -> None:
    """Sessions are delivered, then the members are gone while fragments still arrive."""
    one.start_consumer(0)
    await one.write(visits, 1_500)
    await one.committed({n: len(await one.where.log(n)) - 1 for n in range(STREAMS)})
    one.consumer(0).signal(signal.SIGKILL)
    await one.consumer(0).ended()
    await one.write(visits, 300)


async def test_a_group_follows_on_a_copy_with_the_same_offsets(
    kafka: str, zookeeper: str, target: tuple[str, str], namespace: str, tmp_path: Path
) -> None:
    """Before the take-over the producer refuses; after it, a new group follows the source's, whose members
    are refused. Fragments that were not copied are lost, and sessions that name them are made anew."""
    names, visits = Names(namespace), Visits(random.Random(new_seed()))
    at_target = ("--target", target[0], "--namespace", namespace)
    command = ("take-over", *at_target, "--zookeeper", target[1], "--streams", str(STREAMS))
    follow = ("--follow", "default", "--as", "default-2", *settings_of(QUIET))
    async with fleet(kafka, zookeeper, namespace, tmp_path, QUIET, streams=STREAMS) as source:
        await source_with_sessions(source, visits)
        topics = {names.fragments(n): 1 for n in range(STREAMS)} | {names.sessions("default"): PARTITIONS}
        await create_copies(target[0], topics)
        for n in range(STREAMS):
            await copy_by_hand(kafka, target[0], names.fragments(n), leave_out=100 + CUT)
        for n in range(PARTITIONS):
            await copy_by_hand(kafka, target[0], names.sessions("default"), n)
    copied = {n: len(await source.where.log(n)) - 100 - CUT for n in range(STREAMS)}

    async with fleet_at(*target, names, STREAMS, "default-2", tmp_path / "target", QUIET) as one:
        one.start_producer()
        one.start_consumer(10, group="default-2")
        refusals = []

        async def is_refused() -> bool:
            refusals.append(await posted(one, [{"key": "k"}]))
            return "take-over" in one.services["producer"].tail() and refusals[-1][0] == 503

        await until(is_refused, lambda: f"{refusals[-1]}\n{one.tail()}")
        dry = await baton_mirror(*command, *follow, "--dry-run", "-o", "json")
        assert dry.exit_code == 0, dry.output
        assert (await posted(one, [{"key": "k"}]))[0] == 503

        done = await baton_mirror(*command, *follow, "-o", "json")
        again = await baton_mirror(*command, *follow)
        one.start_control()
        one.start_consumer(11, group="default")
        await asyncio.gather(*map(one.ready, ("producer", "consumer-10", "control")))
        for number in range(60):
            fragment = {"key": f"new-{number}", "id": "1", "end": number % 2 == 0}
            assert (await posted(one, [fragment]))[0] == 200
        await one.write(visits, 300)
        await one.close_all()
        promoted = await ask(one, "POST", "/operations", kind="promote", group="default-2", alias="default")

        assert done.exit_code == 0, done.output
        assert promoted.status_code == 202, promoted.text
        assert "nothing is left to do" in again.output
        assert await one.services["consumer-11"].ended() != 0
        assert "ended at another cluster" in one.services["consumer-11"].tail()
        shown = json.loads(done.stdout)["starts"]
        starts = [row["start"] for row in shown]
        assert all(0 < start <= copied[n] for n, start in enumerate(starts)), shown
        assert await wrong_in(one, "default-2") == []
        own = await one.where.delivered()
        assert min(session.first_offset - starts[session.stream] for session in own) >= 0


async def test_check_tells_a_good_copy_from_others(
    kafka: str, zookeeper: str, target: tuple[str, str], namespace: str, tmp_path: Path
) -> None:
    """By key, value, headers and time, in order, whatever the offsets; to be behind is not wrong. A copy
    whose offsets are others lets no group follow."""
    names = Names(namespace)
    where = ("--source", kafka, "--target", target[0], "--namespace", namespace, "-o", "json")
    async with fleet(kafka, zookeeper, namespace, tmp_path, QUIET, streams=STREAMS) as source:
        source.start_consumer(0)
        await source.write(Visits(random.Random(new_seed())), 900)
        await source.close_all()
    sessions = names.sessions("default")
    await create_copies(target[0], {names.fragments(n): 1 for n in range(STREAMS)}, retention_ms="3600000")
    await copy_by_hand(kafka, target[0], names.fragments(0), in_transactions=50, leave_out=5)
    await copy_by_hand(kafka, target[0], names.fragments(1))
    await copy_by_hand(kafka, target[0], names.fragments(2), change_at=20)

    async def checked(*more: str) -> tuple[int, dict[tuple[str, int], dict[str, Any]], list[str]]:
        done = await baton_mirror("check", *where, *more)
        found = json.loads(done.stdout)
        rows = {(row["topic"], row["partition"]): row for row in found["partitions"]}
        return done.exit_code, rows, found["synced_groups"]

    code, rows, _ = await checked("--sample", "5")
    assert code == 1
    shown = [rows[names.fragments(n), 0] for n in range(STREAMS)]
    assert [row["behind"] for row in shown] == [5, 0, 0]
    assert [row["same_offsets"] for row in shown] == [False, True, True]
    assert [row["faults"] for row in shown] == [[], [], []]
    assert rows[sessions, 0]["faults"] == ["is missing at the target"]

    await create_copies(target[0], {sessions: PARTITIONS})
    for n in range(PARTITIONS):
        await copy_by_hand(kafka, target[0], sessions, n)
    async with Cluster(target[0]) as cluster:
        await KafkaGroup(cluster, names.kafka_group("default")).commit((names.fragments(0), 0), 1, "")
    code, rows, synced = await checked("--all")
    shown = [rows[names.fragments(n), 0] for n in range(STREAMS)]
    assert (code, synced) == (1, [names.kafka_group("default")])
    assert [len(row["faults"]) for row in shown] == [0, 0, 1]
    assert "offset 20" in shown[2]["faults"][0]
    assert not [
        fault for n in range(PARTITIONS) for fault in rows[sessions, n]["faults"] if "record" in fault
    ]

    to_follow = ("--zookeeper", target[1], "--namespace", namespace, "--follow", "default")
    refused = await baton_mirror("take-over", "--target", target[0], *to_follow)
    assert "stream 0" in str(refused.exception)
    assert "only a group that is alone" in str(refused.exception)
    async with AIOKafkaConsumer(names.fragments(0), bootstrap_servers=target[0], group_id=WORKERS) as copier:
        while not copier.assignment():
            await copier.getmany(timeout_ms=50)
        refused = await baton_mirror("take-over", "--target", target[0], *to_follow)
    assert "MirrorMaker are running" in str(refused.exception)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
# aiozk leaves the socket of a connection that a busy machine has lost to the garbage collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("same_offsets", [False, True], ids=["exactly-once", "same-offsets"])
async def test_the_source_is_lost_under_load_and_the_copy_goes_on(
    zookeeper: str, namespace: str, tmp_path: Path, same_offsets: bool
) -> None:
    """MirrorMaker is killed once (not with `same-offsets`, where that may double records), then the source
    with all its services, under load. At the target, a group that is alone, or one that follows, has every
    fragment that was copied in exactly one current session; what was not copied is counted."""
    if missing := missing_jars():
        pytest.skip(f"{len(missing)} jars are missing: `baton jars --with mirror`")
    names, began_s = Names(namespace), time.monotonic()
    visits = Visits(random.Random(new_seed()))
    with ExitStack() as stack:
        there = stack.enter_context(second_cluster())
        lost = KafkaServer(stack.enter_context(temporary_home("source")))
        stack.callback(lost.kill)
        lost.start()
        target = there[0].address, there[1].address
        copier = MirrorMaker(tmp_path, lost.address, target[0], names, same_offsets=same_offsets)
        stack.callback(copier.kill)
        sent, copied = await lose_the_source(
            lost, zookeeper, there, copier, names, visits, tmp_path, same_offsets
        )
        async with fleet_at(*target, names, STREAMS, "default-2", tmp_path / "target", QUIET) as one:
            await go_on(one, target, visits, names, sent, copied, same_offsets)
    print(f"{time.monotonic() - began_s:.0f} s")


async def lose_the_source(
    lost: KafkaServer,
    zookeeper: str,
    there: tuple[KafkaServer, ZooKeeperServer],
    copier: MirrorMaker,
    names: Names,
    visits: Visits,
    home: Path,
    same_offsets: bool,
) -> tuple[set[str], list[str]]:
    """The ids that were acknowledged at the source, and those in the copy, once all is over there."""
    async with fleet(lost.address, zookeeper, names.namespace, home, QUIET, streams=STREAMS) as source:
        source.start_producer()
        for index in (0, 1):
            source.start_consumer(index)
        await asyncio.gather(*map(source.ready, ("producer", "consumer-0", "consumer-1")))
        sender = Sender(source, visits)
        sending = asyncio.create_task(sender.run())
        copier.start()
        async with fleet_at(*_addresses(there), names, STREAMS, "none", home / "none", QUIET) as copy:

            async def has(count: int) -> None:
                async def is_copied() -> bool:
                    there_are = {names.fragments(n) for n in range(STREAMS)} <= set(
                        await list_topics(copy.where.kafka)
                    )
                    return there_are and len(await ids_in(copy)) >= count

                await until(is_copied, lambda: f"{count} are not copied:\n{copier.tail()}", within_s=400)

            await has(500)
            if not same_offsets:
                copier.kill()
                await sender.more(500)
                copier.start()
            await has(len(sender.acknowledged) + 500)
            checked = await baton_mirror(
                *("check", "--source", lost.address, "--target", there[0].address),
                *("--namespace", names.namespace, "--all", "-o", "json"),
            )
            # what is acknowledged while MirrorMaker stands still is lost
            copier.pause()
            await sender.more(100)
            # all at once, while fragments are on their way everywhere
            lost.kill()
            copier.resume()
            source.end()
            sender.is_over = True
            await sending
            print(f"behind before the loss: {json.loads(checked.stdout)['partitions']}")
            refused = await baton_mirror(
                *("take-over", "--target", there[0].address, "--namespace", names.namespace),
                *("--zookeeper", there[1].address),
            )
            copier.kill()
            await copier.left()
            assert "MirrorMaker are running" in str(refused.exception)
            assert all(not row["faults"] for row in json.loads(checked.stdout)["partitions"]), checked.stdout
            return sender.acknowledged, await ids_in(copy)


def _addresses(there: tuple[KafkaServer, ZooKeeperServer]) -> tuple[str, str]:
    return there[0].address, there[1].address


async def _is_decided(*command: str) -> bool:
    """Whether Kafka has ended what MirrorMaker left behind."""
    return not isinstance((await baton_mirror(*command, "--dry-run")).exception, Undecided)


async def go_on(
    one: Fleet,
    target: tuple[str, str],
    visits: Visits,
    names: Names,
    sent: set[str],
    copied: list[str],
    same_offsets: bool,
) -> None:
    """Takes over, starts the services, sends more, and judges."""
    command = ("take-over", "--target", target[0], "--zookeeper", target[1], "--namespace", names.namespace)
    follow = ("--follow", "default", *settings_of(QUIET))
    await until(lambda: _is_decided(*command), lambda: "MirrorMaker's transaction stays open")
    if not same_offsets:
        cannot = await baton_mirror(*command, *follow)
        assert "only a group that is alone" in str(cannot.exception), cannot.output
        follow = ()
    done = await baton_mirror(*command, *follow)
    assert done.exit_code == 0, (done.output, done.exception)
    print(done.output)
    one.start_producer()
    one.start_control()
    for index in (10, 11):
        one.start_consumer(index, group="default-2")
    await asyncio.gather(*map(one.ready, ("producer", "control", "consumer-10", "consumer-11")))
    sender = Sender(one, visits)
    sending = asyncio.create_task(sender.run())
    await sender.more(500)
    sender.is_over = True
    await sending
    await one.close_all()

    assert set(copied) <= set(await ids_in(one))
    assert await wrong_in(one, "default-2") == []
    doubled = len(copied) - len(set(copied))
    print(
        f"{len(sent)} acknowledged at the source, {len(set(copied))} copied, {len(sent - set(copied))} lost, "
        f"{doubled} repeats, {len(sender.acknowledged)} acknowledged afterwards"
    )
