"""`make bench`: starts the servers, runs every measurement, prints one table.

`python -m bench sessionize recovery` runs only those parts. Each ratio compares two values of the same round.
The table has the minimum, median and maximum over the rounds, and the machine and the versions come first.
"""

from __future__ import annotations

import statistics
import sys

from rich.console import Console
from rich.table import Table

from bench import (
    drain,
    failover,
    front_door,
    groups,
    handover,
    idle,
    members,
    queue,
    recovery,
    restarts,
    sessionize,
    spark_runs,
    spark_tables,
    starts,
    turns,
    whole_log,
    write_lanes,
)
from bench.machine import machine
from bench.report import Row
from tests.servers import KafkaServer, ZooKeeperServer, temporary_home

PARTS = (
    *("sessionize", "http", "members", "idle", "lanes", "recovery"),
    *("handover", "drain", "restarts", "failover", "turns", "log", "groups"),
    *("queue", "starts", "spark-runs", "tables"),
)
WITH_SERVERS = {
    "sessionize",
    "members",
    "idle",
    "lanes",
    "recovery",
    "handover",
    "restarts",
    "failover",
    "groups",
    "spark-runs",
}


def _spread(values: list[float]) -> str:
    if not values:
        return ""
    return f"{statistics.median(values):.3g} ({min(values):.3g} … {max(values):.3g})"


def table(rows: list[Row]) -> Table:
    """The rows as one table: median (minimum … maximum)."""
    shown = Table("figure", "unit", "Baton", "baseline", "ratio", "target")
    for row in rows:
        ratios = [mine / other for mine, other in zip(row.baton, row.baseline, strict=False)]
        shown.add_row(
            row.name, row.unit, _spread(row.baton), _spread(row.baseline), _spread(ratios), row.target
        )
    return shown


def main(parts: list[str]) -> int:
    """Runs the named parts, or all."""
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        print(f"unknown measurement {', '.join(unknown)}; choose from {', '.join(PARTS)}", file=sys.stderr)
        return 2
    console = Console(width=160)
    console.print(machine())
    rows: list[Row] = []
    selected = parts or list(PARTS)
    if WITH_SERVERS.intersection(selected):
        rows += with_servers(selected)
    if "http" in selected:
        rows += front_door.run()
    if "drain" in selected:
        rows += drain.run()
    if "turns" in selected:
        rows += turns.run()
    if "log" in selected:
        rows += whole_log.run()
    if "queue" in selected:
        rows += queue.run()
    if "starts" in selected:
        rows += starts.run()
    if "tables" in selected:
        rows += spark_tables.run()
    console.print(table(rows))
    return 0


def with_servers(selected: list[str]) -> list[Row]:
    """The rows of the selected parts that need Kafka and ZooKeeper."""
    rows: list[Row] = []
    with temporary_home("kafka") as kafka_home, temporary_home("zookeeper") as zookeeper_home:
        kafka, zookeeper = KafkaServer(kafka_home), ZooKeeperServer(zookeeper_home)
        try:
            kafka.start()
            zookeeper.start()
            if "sessionize" in selected:
                rows += sessionize.run(kafka.address)
            if "groups" in selected:
                rows += groups.run(kafka.address, is_filled="sessionize" in selected)
            if "recovery" in selected:
                rows += recovery.run(kafka.address)
            if "members" in selected:
                rows += members.run(kafka.address, zookeeper.address)
            if "idle" in selected:
                assert kafka.pid is not None
                rows += idle.run(kafka.address, zookeeper.address, kafka.pid)
            if "lanes" in selected:
                rows += write_lanes.run(kafka.address)
            if "handover" in selected:
                rows += handover.run(kafka.address, zookeeper.address)
            if "restarts" in selected:
                rows += restarts.run(kafka.address, zookeeper.address)
            if "failover" in selected:
                rows += failover.run(kafka.address, zookeeper.address)
            if "spark-runs" in selected:
                rows += spark_runs.run(kafka.address, zookeeper.address)
        finally:
            kafka.kill()
            zookeeper.kill()
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
