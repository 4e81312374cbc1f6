"""A broker that demands TLS, a principal and rights: who gets in, why others do not, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cli.stack.secured.certificates import make_authority
from services.consumer.adapters.kafka.log import KafkaStreamLog
from shared.errors import KafkaDenied, KafkaUnavailable
from shared.kafka.admin.catalog import TopicSpec, create_topics
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.admin.topics import checkpoints_topic, ensure_topics, fragments_topics, sessions_topic
from shared.kafka.connect.access import KafkaAccess
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import LATEST, list_offsets
from shared.kafka.read.ranges import read_range
from shared.kafka.send.outcome import Delivery
from shared.kafka.send.sender import Sender
from shared.kafka.send.transactional import GroupOffset, TransactionalWriter
from shared.model.names import Names
from tests.integration.kafka_log_ground import RETENTION_MS
from tests.log_contract import SETTINGS, LogContract
from tests.secured_kafka import ADMIN, SecuredKafka
from tests.topics import Append

WAYS: dict[str, Callable[[SecuredKafka, str], KafkaAccess]] = {
    "certificate": lambda kafka, name: kafka.by_certificate(name),
    "PLAIN": lambda kafka, name: kafka.by_secret("PLAIN", name),
    "SCRAM-SHA-256": lambda kafka, name: kafka.by_secret("SCRAM-SHA-256", name),
    "SCRAM-SHA-512": lambda kafka, name: kafka.by_secret("SCRAM-SHA-512", name),
    "OAUTHBEARER": lambda kafka, name: kafka.by_secret("OAUTHBEARER", name),
}
"""Every way to be a principal."""


async def new_topic(kafka: SecuredKafka, name: str) -> str:
    async with Cluster(kafka.root) as cluster:
        await create_topics(cluster, [TopicSpec(name=name)], 1)
    return name


async def append(cluster: Cluster, writer: TransactionalWriter, topic: str, *values: bytes) -> None:
    """One transaction."""
    where = topic, 0
    await writer.add([where])
    await writer.write(where, [(None, value, []) for value in values])
    await writer.commit_offset(
        GroupOffset(group=f"group.{topic}", partition=where, offset=len(values), metadata="m")
    )
    await writer.end(is_commit=True)


@pytest.mark.parametrize("way", WAYS)
async def test_a_principal_works_whichever_way_it_shows_who_it_is(
    secured_kafka: SecuredKafka, namespace: str, way: str
) -> None:
    """Topics, transactions, offsets and records over TLS, by a certificate or each mechanism of SASL."""
    topic = f"{namespace}.topic"
    async with Cluster(WAYS[way](secured_kafka, ADMIN)) as cluster:
        await create_topics(cluster, [TopicSpec(name=topic)], 1)
        writer = TransactionalWriter(cluster, f"id.{namespace}", timeout_ms=10_000)
        await writer.open()
        await append(cluster, writer, topic, b"a", b"b")

        read = read_range(cluster, (topic, 0), 0, 1, is_committed=True)
        found = [record.value async for record in read]
        committed = await KafkaGroup(cluster, f"group.{topic}").committed([(topic, 0)])

    assert found == [b"a", b"b"]
    assert committed[topic, 0] == (2, "m")


class TestLog(LogContract):
    """A member's log, with its least rights alone, while sessions end all the time."""

    @pytest.fixture
    async def names(self, secured_kafka: SecuredKafka, namespace: str) -> Names:
        """The names of a log whose topics exist."""
        names = Names(namespace)
        topics = [
            *fragments_topics(names, 2, RETENTION_MS),
            sessions_topic(names, "default", 2, -1),
            checkpoints_topic(names, "default", 2),
        ]
        await ensure_topics(secured_kafka.root, topics, 1)
        for principal in ("producer", "consumer"):
            await secured_kafka.allow(principal, names)
        await secured_kafka.allow("follower", names, user="consumer")
        return names

    @pytest.fixture
    async def append(self, secured_kafka: SecuredKafka, names: Names) -> AsyncIterator[Append]:
        """Appends records to its streams, as a producer does."""
        async with Cluster(secured_kafka.by_certificate("producer")) as cluster:
            sender = Sender(cluster, deliver_s=20.0, max_batch_bytes=100_000)

            async def append(stream: int, key: bytes | None, value: bytes) -> int:
                delivery = Delivery()
                place = names.fragments(stream), 0
                delivery.expect(sender.add(place, [(key, value, [])], [0], delivery))
                await delivery.done
                ((_, offset),) = delivery.offsets
                return offset

            yield append
            await sender.close()

    @pytest.fixture
    async def stream_log(self, secured_kafka: SecuredKafka, names: Names) -> AsyncIterator[KafkaStreamLog]:
        """A member's access to it."""
        access = secured_kafka.by_secret("SCRAM-SHA-512", "consumer")
        log = KafkaStreamLog(access, names, "default", SETTINGS, 2)
        yield log
        await log.close()


FAULTS: dict[str, tuple[Callable[[SecuredKafka, Path], KafkaAccess], type[KafkaUnavailable], str]] = {
    "wrong password of PLAIN": (
        lambda kafka, _: kafka.by_secret("PLAIN", ADMIN, "wrong"),
        KafkaDenied,
        "refuses the user or the password: user 'admin', PLAIN, .*Invalid username or password",
    ),
    "wrong password of SCRAM": (
        lambda kafka, _: kafka.by_secret("SCRAM-SHA-512", ADMIN, "wrong", "wrong, too"),
        KafkaDenied,
        "refuses the user or the password: user 'admin', SCRAM-SHA-512, .*invalid credentials",
    ),
    "unknown user": (
        lambda kafka, _: kafka.by_secret("SCRAM-SHA-256", "stranger"),
        KafkaDenied,
        "refuses the user or the password: user 'stranger'",
    ),
    "expired token": (
        lambda kafka, _: kafka.by_secret("OAUTHBEARER", ADMIN, kafka.token(ADMIN, ends_in_s=-1)),
        KafkaDenied,
        "token for Kafka has expired",
    ),
    "token that the broker does not accept": (
        lambda kafka, _: kafka.by_secret("OAUTHBEARER", ADMIN, "opaque"),
        KafkaDenied,
        "refuses the token: .*invalid_token",
    ),
    "foreign authority": (
        lambda kafka, folder: replace(kafka.root, ca_file=str(make_authority(folder).trust)),
        KafkaDenied,
        "broker's certificate is not trusted: .*ca.pem",
    ),
    "no certificate": (
        lambda kafka, _: replace(kafka.root, certificate_file="", key_file=""),
        KafkaDenied,
        "rejects the client's certificate, or that it has none",
    ),
    "certificate of a foreign authority": (
        lambda kafka, folder: replace(
            kafka.root,
            certificate_file=str(make_authority(folder).issue(ADMIN).certificate),
            key_file=str(folder / f"{ADMIN}.key"),
        ),
        KafkaDenied,
        "rejects the client's certificate",
    ),
    "no TLS": (
        lambda kafka, _: KafkaAccess(bootstrap=kafka.address),
        KafkaUnavailable,
        "may demand TLS",
    ),
    "no SASL": (
        lambda kafka, _: replace(kafka.root, bootstrap=kafka.address),
        KafkaUnavailable,
        "may demand another BATON_KAFKA_SECURITY_PROTOCOL",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_who_is_not_let_in_learns_why(secured_kafka: SecuredKafka, tmp_path: Path, fault: str) -> None:
    """In words that name the user and the file, without the secret; and it can be tried again."""
    access, kind, words = FAULTS[fault]
    async with Cluster(access(secured_kafka, tmp_path)) as cluster:
        for _ in range(2):
            with pytest.raises(kind, match=words) as failure:
                await cluster.refresh()
            assert "wrong" not in failure.value.detail
            assert "opaque" not in failure.value.detail


async def test_a_principal_without_a_right_learns_which_one(
    secured_kafka: SecuredKafka, namespace: str
) -> None:
    """At once, and not after the time that leaders and coordinators may take to appear."""
    topic = await new_topic(secured_kafka, f"{namespace}.topic")
    async with Cluster(secured_kafka.by_secret("SCRAM-SHA-512", "nobody")) as cluster, asyncio.timeout(5.0):
        with pytest.raises(KafkaDenied, match=f"{topic}.*TopicAuthorizationFailed.*a right is missing"):
            await list_offsets(cluster, [(topic, 0)], LATEST)
        with pytest.raises(KafkaDenied, match=f"cannot be created, e.g. {namespace}.*a right is missing"):
            await create_topics(cluster, [TopicSpec(name=f"{namespace}.new")], 1)
        with pytest.raises(KafkaDenied, match=r"GroupAuthorizationFailed.*a right is missing"):
            await KafkaGroup(cluster, "group").committed([(topic, 0)])
        with pytest.raises(KafkaDenied, match=r"TransactionalIdAuthorizationFailed.*a right is missing"):
            await TransactionalWriter(cluster, "id", timeout_ms=10_000).open()
