"""The options with which a driver starts Spark on masters of every kind; no cluster is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.control.spark.run.request import ClusterOptions
from services.control.spark.session.spark_session import spark_options

MASTERS = ("spark://far:7077", "yarn", "k8s://https://api:6443")
WORK = Path("work")


def options_on(
    master: str, *, driver_host: str = "", options: dict[str, str] | None = None, **properties: str
) -> dict[str, str]:
    """The options of a driver whose archive is `baton.zip`."""
    cluster = ClusterOptions(driver_host=driver_host, pack="baton.zip", options=options or {})
    return spark_options(master, cluster, WORK, properties)


@pytest.mark.parametrize("master", MASTERS)
def test_executors_find_code_packages_and_driver(master: str) -> None:
    """The archive is unpacked into their working folder. The driver listens on all its addresses."""
    options = options_on(master, driver_host="control")

    assert options["spark.archives"] == "baton.zip#baton"
    assert options["spark.executorEnv.PYTHONPATH"] == "baton"
    assert (options["spark.driver.host"], options["spark.driver.bindAddress"]) == ("control", "0.0.0.0")


@pytest.mark.parametrize("master", MASTERS)
def test_spark_finds_the_drivers_address_if_none_is_set(master: str) -> None:
    """Only a cluster on loopback needs that of loopback."""
    assert {"spark.driver.host", "spark.driver.bindAddress"}.isdisjoint(options_on(master))
    assert options_on("spark://127.0.0.1:7077")["spark.driver.host"] == "127.0.0.1"


@pytest.mark.parametrize("master", MASTERS)
def test_a_driver_holds_only_the_executors_that_it_uses(master: str) -> None:
    """No cluster needs a shuffle service for that; on a local master there are none."""
    options = options_on(master)

    for feature in ("enabled", "shuffleTracking.enabled"):
        assert options[f"spark.dynamicAllocation.{feature}"] == "true"
    # for as long as an executor has output of shuffles, only this time-out ends it, and Spark's is infinite
    assert "spark.dynamicAllocation.shuffleTracking.timeout" in options
    assert not any("dynamicAllocation" in name for name in options_on("local[2]"))


@pytest.mark.parametrize("master", [*MASTERS, "local[2]"])
def test_a_users_option_replaces_ours_but_options_of_java_are_added(master: str) -> None:
    """Java's temporary folder and Kafka's properties must not get lost."""
    java = "spark.driver.extraJavaOptions"
    given = {"spark.sql.shuffle.partitions": "99", "spark.dynamicAllocation.enabled": "false", java: "-Da=1"}

    options = options_on(master, options=given, kafka="x")

    assert options["spark.sql.shuffle.partitions"] == "99"
    assert options["spark.dynamicAllocation.enabled"] == "false"
    words = options[java].split()
    assert f"-Djava.io.tmpdir={WORK / 'tmp'}" in words
    assert words[-2:] == ["-Da=1", "-Dkafka=x"]
    assert options["spark.executor.extraJavaOptions"] == "-Dkafka=x"
