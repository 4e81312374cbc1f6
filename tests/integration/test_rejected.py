"""Rejected fragments: from the producer's door through real Kafka to `baton rejected`, and back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.importing.sending.lanes import BatchLimits
from cli.kafka.rejects import Place, open_rejected
from cli.main import cli
from cli.rejects.replay import Replayed, replay
from cli.terminal.exit_codes import ExitCode
from services.producer.kafka.rejects import KafkaRejects
from shared.errors import KafkaUnavailable
from shared.kafka.admin.topics import ensure_topics, rejected_topic
from shared.kafka.connect.cluster import Cluster
from shared.model.names import Names
from shared.model.rejects import MAX_KEPT_BYTES, Reject, parse_reject
from tests.integration.test_producer_service import producer
from tests.rejects_contract import SHARE_BYTES, RejectsContract, RejectsWorld, refused
from tests.servers import KafkaServer
from tests.topics import records_of
from tests.unit.cli.fake_services import InMemoryProducer
from tests.waiting import running, until

NDJSON = {"content-type": "application/x-ndjson"}


async def baton(kafka: str, namespace: str, *arguments: str) -> Result:
    """Runs `baton rejected …` on this Kafka."""
    environment = {"BATON_KAFKA": kafka, "BATON_NAMESPACE": namespace}
    run = CliRunner().invoke
    return await asyncio.to_thread(run, cli, ["rejected", *arguments], env=environment)


class KafkaWorld(RejectsWorld):
    """The topic exists from the start; the loop that writes to it starts with `come_back`."""

    def __init__(self, kafka: str, cluster: Cluster, names: Names, stack: contextlib.AsyncExitStack) -> None:
        self.rejects: KafkaRejects = KafkaRejects(
            cluster, names, max_waiting_bytes=100_000, share_bytes=SHARE_BYTES
        )
        self._kafka = kafka
        self._topic = names.rejected
        self._stack = stack

    async def come_back(self) -> None:
        await self._stack.enter_async_context(running(self.rejects.run()))

    async def kept(self, count: int) -> Sequence[Reject]:
        await until(lambda: self.rejects.counts.stored >= count)
        records = await records_of(self._kafka, self._topic, at_least=count)
        return [parse_reject(record.value, record.headers) for record in records]


@contextlib.asynccontextmanager
async def writing(kafka: str, names: Names, **options: Any) -> AsyncIterator[KafkaRejects]:
    """A running writer of rejects, whose topic exists."""
    await ensure_topics(kafka, [rejected_topic(names)], 1)
    async with Cluster(kafka) as cluster:
        rejects = KafkaRejects(cluster, names, **options)
        async with running(rejects.run()):
            yield rejects


class TestKafkaRejects(RejectsContract):
    """The contract on the real one."""

    @pytest.fixture
    async def world(self, kafka: str, namespace: str) -> AsyncIterator[KafkaWorld]:
        names = Names(namespace)
        await ensure_topics(kafka, [rejected_topic(names)], 1)
        async with contextlib.AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(Cluster(kafka))
            yield KafkaWorld(kafka, cluster, names, stack)


async def test_a_record_has_everything_about_a_reject(kafka: str, namespace: str) -> None:
    """For any Kafka tool: the value as posted, the rest as headers, the broker's time as timestamp."""
    names = Names(namespace)

    async with writing(kafka, names) as rejects:
        rejects.put([refused(3), refused(5, "size")], [b'{"key": 1}', b"x" * 40_000])
        whole, cut = await records_of(kafka, names.rejected, at_least=2)

    common = {"detail": b"why"}
    assert (whole.key, whole.value, whole.timestamp_type) == (None, b'{"key": 1}', 1)
    assert dict(whole.headers) == common | {"reason": b"time", "size": b"10", "index": b"3"}
    assert cut.value == b"x" * MAX_KEPT_BYTES
    assert dict(cut.headers) == common | {"reason": b"size", "size": b"40000", "index": b"5", "cut": b"1"}


async def test_rejects_survive_a_restart_of_the_broker(kafka_server: KafkaServer, namespace: str) -> None:
    """Rejects put meanwhile are stored when it is back, each once."""
    names = Names(namespace)
    async with writing(kafka_server.address, names, ack_timeout_s=200) as rejects:
        rejects.put([refused(0)], [b"before"])
        await until(lambda: rejects.counts.stored == 1)
        await asyncio.to_thread(kafka_server.kill)

        for number in range(1, 100):
            rejects.put([refused(number)], [b"meanwhile"])
        await asyncio.to_thread(kafka_server.start)
        await until(lambda: rejects.counts.stored + rejects.counts.dropped == 100, within_s=200.0)

    records = await records_of(kafka_server.address, names.rejected)
    indexes = [int(dict(record.headers)["index"]) for record in records]
    assert rejects.counts.dropped == 0
    assert indexes == list(range(100))


async def test_a_batch_with_an_unknown_outcome_is_not_written_again(
    kafka_server: KafkaServer, namespace: str
) -> None:
    """A reject that is in the topic twice would be replayed twice; so it counts as dropped."""
    names = Names(namespace)
    # long enough for a busy broker to acknowledge the first one
    async with writing(kafka_server.address, names, ack_timeout_s=6) as rejects:
        rejects.put([refused(0)], [b"before"])
        await until(lambda: rejects.counts.stored == 1)
        kafka_server.pause()

        rejects.put([refused(1)], [b"unknown"])
        await until(lambda: rejects.counts.dropped == 1, lambda: repr(rejects))
        rejects.put([refused(2)], [b"after"])
        kafka_server.resume()
        await until(lambda: rejects.counts.stored + rejects.counts.dropped == 3)

    values = [record.value for record in await records_of(kafka_server.address, names.rejected)]
    assert rejects.counts.stored == 2
    assert values[-1] == b"after"
    assert values.count(b"unknown") <= 1


async def test_a_stop_waits_for_kafka_for_a_bounded_time(namespace: str) -> None:
    """It ends without Kafka; rejects that are not stored by then count as dropped."""
    async with Cluster("127.0.0.1:1") as cluster:
        rejects = KafkaRejects(cluster, Names(namespace))
        async with running(rejects.run()):
            rejects.put([refused(0)], [b"{}"])

            await rejects.flush()

    assert (rejects.counts.stored, rejects.counts.dropped) == (0, 1)


async def test_rejected_fragments_are_listed_and_replayed(kafka: str, zookeeper: str, namespace: str) -> None:
    """A limit was too low: they are listed and counted, and replayed after the fix, each once."""
    settings = {"kafka": kafka, "zookeeper": zookeeper, "namespace": namespace, "streams": 1}
    long = [b'{"key":"k", "data":"%04d%b"}' % (n, b"x" * 100) for n in range(30)]
    too_long = b'{"key":"k", "data":"' + b"x" * 40_000 + b'"}'
    names = Names(namespace)

    async with producer(**settings, max_fragment_bytes=64) as strict:
        await strict.until_ready()
        await strict.client.post("/fragments", content=b"\n".join([*long, b"{}", too_long]), headers=NDJSON)
        await strict.client.post("/fragments", content=b"{", headers={"content-type": "application/json"})
        # at once, so that the stop must flush what waits
        strict.process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(strict.process.wait(), 30)
    async with producer(**settings, write_keys="s3cret") as lenient:
        await lenient.until_ready()
        url = str(lenient.client.base_url)
        listed = await baton(kafka, namespace, "-o", "json", "--limit", "3")
        table = await baton(kafka, namespace, "--reason", "size", "--since", "1h")
        none = await baton(kafka, namespace, "--since", "2099-01-01T00:00:00Z")
        dry = await baton(kafka, namespace, "replay", "--reason", "size", "--dry-run", "--url", url)
        stored_before = await records_of(kafka, names.fragments(0))
        locked = await baton(kafka, namespace, "replay", "--reason", "size", "--url", url)
        options = ["--url", url, "--write-key", "s3cret"]
        first = await baton(kafka, namespace, "replay", "--reason", "size", *options, "-o", "json")
        second = await baton(kafka, namespace, "replay", "--reason", "size", *options, "-o", "json")
        again = await baton(kafka, namespace, "replay", "--reason", "invalid", *options)
        listed_again = await baton(kafka, namespace, "-o", "json", "--reason", "invalid")
        shown = await baton(kafka, namespace, "show", "0/30", "-o", "json")
        dismissed = await baton(kafka, namespace, "dismiss", "0/30")
        nothing = await baton(kafka, namespace, "--reason", "invalid")
        hopeless = await baton(kafka, namespace, "replay", "--reason", "invalid", "--from-start", *options)

    found = json.loads(listed.output)
    assert [(row["reason"], row["count"], row["cut"]) for row in found["reasons"]] == [
        ("size", 31, 1), ("invalid", 1, 0), ("unreadable", 1, 0)
    ]  # fmt: skip
    assert [row["offset"] for row in found["rejected"]] == [30, 31, 32]
    assert "31" in table.output
    assert "invalid" not in table.output
    assert none.output == "nothing was rejected\n"
    assert (dry.exit_code, dry.output) == (
        0,
        "30 with reason 'size' would be sent again; skipped: 1 truncated\n",
    )
    assert stored_before == []
    assert locked.exit_code == ExitCode.REFUSED
    assert "write key" in locked.output
    answer = json.loads(first.output)
    assert (answer["found"], answer["cut"], answer["accepted"], answer["rejected"]) == (31, 1, 30, 0)
    assert json.loads(second.output)["found"] == 0
    assert again.exit_code == 1
    assert "1 rejected again" in again.output
    assert "1 × invalid, first at offset 30" in again.output
    assert [row["id"] for row in json.loads(listed_again.output)["rejected"]] == ["0/30"]
    history = json.loads(shown.output)
    assert (history["posted"], history["dismissed"]) == ("{}", False)
    assert [(one["offset"], one["reason"]) for one in history["rejections"]] == [
        (30, "invalid"),
        (33, "invalid"),
    ]
    assert (dismissed.output, nothing.output) == ("dismissed 1 reject\n", "no reject is open; 1 dismissed\n")
    assert (hopeless.exit_code, "1 dismissed" in hopeless.output) == (0, True)
    stored = await records_of(kafka, names.fragments(0))
    assert [record.value for record in stored] == [
        b'{"id":"rejected/0/%d",' % offset + value[1:] for offset, value in enumerate(long)
    ]


@pytest.mark.parametrize(
    "lost", [Place(offset=99, appended_ms=7), Place(offset=99), Place(offset=3, appended_ms=7)]
)
async def test_the_place_in_a_lost_log_is_replaced(kafka: str, namespace: str, lost: Place) -> None:
    """Beyond the end, or where another record is now: the next replay begins at the start, others do not."""
    names = Names(namespace)
    async with writing(kafka, names) as rejects:
        rejects.put([refused(n) for n in range(3)], [b'{"key":"k"}'] * 3)
        await until(lambda: rejects.counts.stored == 3)
    async with open_rejected(kafka, names, reason="time") as log:
        await log.commit(0, lost)

    found = []
    for _ in range(2):
        replayed = Replayed()
        async with open_rejected(kafka, names, reason="time") as log:
            await replay(log, InMemoryProducer().client(0.0), "time", limits=BatchLimits(), replayed=replayed)
        found.append((replayed.found, replayed.has_started_over))

    async with open_rejected(kafka, names, reason="time") as log:
        place = log.opened_at[0]
    (*_, last) = await records_of(kafka, names.rejected)
    assert found == [(3, True), (0, False)]
    assert place == Place(offset=3, appended_ms=last.timestamp)


async def test_without_a_topic_the_command_says_so(kafka: str, namespace: str) -> None:
    """For another namespace, or before the first producer: an error, not an empty list."""
    result = await baton(kafka, namespace)

    assert isinstance(result.exception, KafkaUnavailable)
    assert f"no topic {namespace}.fragments.rejected yet" in str(result.exception)
