"""Configuration and command lines of ZooKeeper and Kafka: the values that Baton rests on."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from cli.stack.lock import class_path, read_lock
from cli.stack.servers import (
    KafkaOptions,
    ZooKeeperOptions,
    kafka_argv,
    kafka_config,
    kafka_format_argv,
    new_cluster_id,
    prepare_kafka,
    zookeeper_argv,
    zookeeper_config,
)
from shared.kafka.topics import MAX_RECORD_BYTES


def parse(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_kafka_never_creates_a_topic_by_itself() -> None:
    """Topics are made with the right settings or not at all."""
    assert parse(kafka_config(KafkaOptions(home=Path("h"))))["auto.create.topics.enable"] == "false"


def test_kafka_takes_the_largest_record_that_baton_writes() -> None:
    """A batch of one 2 MB session fits."""
    assert int(parse(kafka_config(KafkaOptions(home=Path("h"))))["message.max.bytes"]) > MAX_RECORD_BYTES


def test_kafka_keeps_committed_offsets_as_long_as_it_likes() -> None:
    """The default of a week is left alone: Baton has to live with it everywhere."""
    assert "offsets.retention.minutes" not in parse(kafka_config(KafkaOptions(home=Path("h"))))


def test_every_listener_is_on_loopback_and_its_own_port() -> None:
    """Host names may resolve to addresses of other networks, so none is used."""
    settings = parse(kafka_config(KafkaOptions(home=Path("h"), port=1092, controller_port=1093)))
    zookeeper = parse(zookeeper_config(ZooKeeperOptions(home=Path("h"), port=1181)))

    both = "PLAINTEXT://127.0.0.1:1092,CONTROLLER://127.0.0.1:1093"
    assert settings["listeners"] == settings["advertised.listeners"] == both
    assert settings["controller.quorum.bootstrap.servers"] == "127.0.0.1:1093"
    assert (zookeeper["clientPortAddress"], zookeeper["clientPort"]) == ("127.0.0.1", "1181")


def test_zookeeper_grants_short_sessions_and_answers_srvr() -> None:
    """Two ticks are the shortest ZooKeeper session; aiozk asks `srvr` before it trusts a server."""
    settings = parse(zookeeper_config(ZooKeeperOptions(home=Path("h"))))

    assert 2 * int(settings["tickTime"]) <= 1000
    assert "srvr" in settings["4lw.commands.whitelist"].split(",")
    assert settings["admin.enableServer"] == "false"


def test_the_two_class_paths_are_never_mixed() -> None:
    """Kafka has exactly the jars of the lock file, ZooKeeper those of PySpark."""
    jars = class_path(Path("/k"), read_lock("kafka"))

    kafka = kafka_argv(KafkaOptions(home=Path("h")), "java", jars)
    zookeeper = zookeeper_argv(ZooKeeperOptions(home=Path("h")), "java", Path("/pyspark/jars"))

    assert {Path(p).parent for p in kafka[kafka.index("-cp") + 1].split(os.pathsep)} == {Path("/k")}
    assert zookeeper[zookeeper.index("-cp") + 1] == "/pyspark/jars/*"


def test_formatting_leaves_a_formatted_storage_alone(tmp_path: Path) -> None:
    """The command may run twice, and the options know whether it has run."""
    options = KafkaOptions(home=tmp_path)
    prepare_kafka(options)

    before = options.is_formatted
    (options.data / "meta.properties").write_text("")

    assert "--ignore-formatted" in kafka_format_argv(options, "java", "cp", "id")
    assert (before, options.is_formatted) == (False, True)


def test_cluster_ids_are_sixteen_bytes_and_no_option() -> None:
    """Kafka's tools would take an id that begins with a dash for an option."""
    ids = [new_cluster_id() for _ in range(500)]

    assert len(set(ids)) == 500
    assert all(len(base64.urlsafe_b64decode(one + "==")) == 16 for one in ids)
    assert not any(one.startswith("-") for one in ids)
