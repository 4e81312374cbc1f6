"""Configuration and command lines of ZooKeeper and Kafka: the values that Baton depends on."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from cli.stack.jars.lock import class_path, read_lock
from cli.stack.servers.servers import (
    KafkaOptions,
    ZooKeeperOptions,
    kafka_argv,
    kafka_config,
    kafka_format_argv,
    new_cluster_id,
    prepare_kafka,
    prepare_zookeeper,
    zookeeper_argv,
    zookeeper_config,
)
from shared.kafka.admin.topics import MAX_RECORD_BYTES


def parse(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_kafka_has_the_settings_that_baton_needs() -> None:
    """Topics are never created implicitly, the largest record fits, and offsets expire after Kafka's default.

    Baton must cope with that default everywhere, so the local stack does not hide it.
    """
    settings = parse(kafka_config(KafkaOptions(home=Path("h"))))

    assert settings["auto.create.topics.enable"] == "false"
    assert int(settings["message.max.bytes"]) > MAX_RECORD_BYTES
    assert "offsets.retention.minutes" not in settings


def test_every_listener_is_on_loopback_with_its_own_port() -> None:
    """By address: a host name might resolve to another network."""
    settings = parse(kafka_config(KafkaOptions(home=Path("h"), port=1092, controller_port=1093)))
    zookeeper = parse(zookeeper_config(ZooKeeperOptions(home=Path("h"), port=1181)))

    both = "PLAINTEXT://127.0.0.1:1092,CONTROLLER://127.0.0.1:1093"
    assert settings["listeners"] == settings["advertised.listeners"] == both
    assert settings["controller.quorum.bootstrap.servers"] == "127.0.0.1:1093"
    assert (zookeeper["clientPortAddress"], zookeeper["clientPort"]) == ("127.0.0.1", "1181")


def test_zookeeper_grants_short_sessions_and_answers_srvr() -> None:
    """The shortest ZooKeeper session has two ticks; the readiness probe asks `srvr`."""
    settings = parse(zookeeper_config(ZooKeeperOptions(home=Path("h"))))

    assert 2 * int(settings["tickTime"]) <= 1000
    assert "srvr" in settings["4lw.commands.whitelist"].split(",")
    assert settings["admin.enableServer"] == "false"


def test_the_logs_of_both_servers_bear_date_and_time_zone(tmp_path: Path) -> None:
    """Their defaults give the time of day alone."""
    options = ZooKeeperOptions(home=tmp_path)
    prepare_zookeeper(options)

    assert f"-Dlog4j2.configurationFile={options.logging}" in zookeeper_argv(options, "java", Path("jars"))
    assert "%d{yyyy-MM-dd'T'HH:mm:ss.SSS}{UTC}Z" in options.logging.read_text()
    assert any("SSSZ" in part for part in kafka_argv(KafkaOptions(home=tmp_path), "java", ""))


def test_the_two_class_paths_are_never_mixed() -> None:
    """Kafka has exactly the jars of the lock file, each by name; ZooKeeper has all of PySpark."""
    jars = read_lock("kafka")

    kafka = kafka_argv(KafkaOptions(home=Path("h")), "java", class_path(Path("/k"), jars))
    zookeeper = zookeeper_argv(ZooKeeperOptions(home=Path("h")), "java", Path("/pyspark/jars"))

    assert kafka[kafka.index("-cp") + 1].split(os.pathsep) == [f"/k/{jar.file}" for jar in jars]
    assert zookeeper[zookeeper.index("-cp") + 1] == "/pyspark/jars/*"


def test_formatting_keeps_a_formatted_storage(tmp_path: Path) -> None:
    """The command may run twice, and `is_formatted` says whether it has run."""
    options = KafkaOptions(home=tmp_path)
    prepare_kafka(options)
    assert not options.is_formatted

    (options.data / "meta.properties").touch()

    assert options.is_formatted
    assert "--ignore-formatted" in kafka_format_argv(options, "java", "cp", "id")


def test_cluster_ids_have_sixteen_bytes_and_no_leading_dash() -> None:
    """Kafka's tools would read an id that starts with a dash as an option."""
    ids = [new_cluster_id() for _ in range(500)]

    assert all(len(base64.urlsafe_b64decode(one + "==")) == 16 for one in ids)
    assert not any(one.startswith("-") for one in ids)
