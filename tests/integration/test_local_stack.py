"""The servers of the local stack, for real: they start from nothing and keep what they hold."""

from __future__ import annotations

from shared.kafka import TopicSpec, ensure_topics, list_topics
from tests.servers import KafkaServer, ZooKeeperServer


async def test_kafka_keeps_its_topics_over_a_restart(kafka_server: KafkaServer, namespace: str) -> None:
    """What Kafka has acknowledged is there again after an orderly stop and after a SIGKILL."""
    topic = f"{namespace}.kept"
    await ensure_topics(kafka_server.address, [TopicSpec(name=topic)], 1)

    kafka_server.stop()
    kafka_server.start()
    after_stop = await list_topics(kafka_server.address)
    kafka_server.kill()
    kafka_server.start()
    after_kill = await list_topics(kafka_server.address)

    assert topic in after_stop
    assert topic in after_kill


def test_zookeeper_starts_again(zookeeper_server: ZooKeeperServer) -> None:
    """A killed ZooKeeper answers again at the same address after a start."""
    before = zookeeper_server.pid

    zookeeper_server.kill()
    zookeeper_server.start()

    assert zookeeper_server.pid not in (None, before)
