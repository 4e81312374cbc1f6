"""How long Kafka and Spark take to start, with and without the archives of their classes, in turns.

`python -m bench starts`. A broker has started when it lists its topics. Spark starts a driver, writes a table
of 100 rows, reads it and ends: what any job does besides its own work.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.report import Row
from cli.stack.jars.lock import jar_folder
from cli.stack.servers.class_archives import ensure_archive
from services.control.spark.rehearsal import rehearse
from services.control.spark.session import spark_session
from shared.class_archive import PROGRAMS, from_archive
from tests.servers import KafkaServer

ROUNDS = 5
WITH, WITHOUT = "with", "without"


class PlainKafkaServer(KafkaServer):
    """A broker that starts without the archive."""

    def argv(self) -> list[str]:
        archive = from_archive("kafka")
        return [one for one in super().argv() if one not in archive]


def run() -> list[Row]:
    """The rows; makes the archives if there are none."""
    for program in PROGRAMS:
        if not ensure_archive(program):
            raise RuntimeError(f"Java could not make an archive of the classes of {program}")
    broker: dict[type[KafkaServer], list[float]] = {KafkaServer: [], PlainKafkaServer: []}
    spark: dict[str, list[float]] = {WITH: [], WITHOUT: []}
    for _ in range(ROUNDS):
        for server, of_broker in broker.items():
            of_broker.append(_broker_s(server))
        for how, of_spark in spark.items():
            of_spark.append(_spark_s(how))
    return [
        Row(
            name="start of a broker; baseline: without its archive",
            unit="s",
            baton=broker[KafkaServer],
            baseline=broker[PlainKafkaServer],
            target="",
        ),
        Row(
            name="a driver's start, small table and end; baseline: without its archive",
            unit="s",
            baton=spark[WITH],
            baseline=spark[WITHOUT],
            target="",
        ),
    ]


def _broker_s(server: type[KafkaServer]) -> float:
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as home:
        broker = server(Path(home))
        broker.prepare()
        began_s = time.monotonic()
        broker.start()
        took_s = time.monotonic() - began_s
        broker.kill()
    return took_s


def _spark_s(how: str) -> float:
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-m", "bench.starts", how], check=True, stderr=subprocess.DEVNULL)
    return time.monotonic() - began_s


def _drive(folder: str) -> None:
    spark = spark_session.start_spark(
        name="bench", master="local[2]", jars=str(jar_folder("spark")), work=Path(folder, "work")
    )
    rehearse(spark, f"delta.`{folder}/table`")
    spark.stop()


if __name__ == "__main__":
    if WITHOUT in sys.argv:
        spark_session.from_archive = lambda _: ()  # type: ignore[assignment, attr-defined]
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as folder:
        _drive(folder)
