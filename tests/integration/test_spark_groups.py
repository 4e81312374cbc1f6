"""The audits of the example of docs/groups.md: two groups of real members, one of them rewound."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cli.stack.jars.lock import jar_folder
from services.control.spark.audit.job import audit
from services.control.spark.run.request import RunRequest
from shared.model.group import parse_group_settings
from shared.zookeeper.group_chain import read_chain
from tests.e2e.fleet import SETTINGS, Fleet, fleet, new_seed
from tests.e2e.groups import rewind
from tests.e2e.visits import Visits
from tests.integration.test_spark_audit import found_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMS = 5
FIRST, SECOND = (0, 1), (10, 11, 12)
"""The members of both groups, by number."""
QUIET = msgspec.structs.replace(SETTINGS, gap_ms=8_000, lateness_ms=4_000)
LIMIT = 2
"""The rewound group's limit on the fragments of a session."""


async def request_of(one: Fleet, group: str) -> RunRequest:
    """An audit of the group, with its settings and starts as ZooKeeper has them."""
    names = one.where.names
    settings, table = await asyncio.gather(one.znodes.get(names.group(group)), one.znodes.get(names.table))
    assert settings is not None
    assert table is not None
    return RunRequest(
        id="run-1",
        job="audit",
        parameters={},
        kafka=one.where.kafka,
        namespace=names.namespace,
        lake=str(one.home / "lake"),
        jars=str(jar_folder("spark")),
        group=group,
        group_settings=parse_group_settings(settings.data),
        streams=one.where.streams,
        chain=await read_chain(one.znodes, names, group),
        stream_table=table.data.decode(),
    )


async def test_the_audits_of_a_group_and_of_one_rewound_from_it_find_nothing(
    spark: SparkSession, kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """Each by its own settings; that of the rewound one begins at its starts, and skips what is covered."""
    visits = Visits(random.Random(new_seed()))
    async with fleet(kafka, zookeeper, namespace, tmp_path, QUIET, streams=STREAMS) as one:
        one.start_control()
        for index in FIRST:
            one.start_consumer(index)
        await one.write(visits, 800)
        await one.committed({n: len(await one.where.log(n)) - 1 for n in range(STREAMS)})
        await one.ready("control")
        middle = {str(n): head.position // 2 for n, head in (await one.where.heads()).items() if n < 3}
        await rewind(one, "default", "default-2", to=middle, settings={"max_session_fragments": LIMIT})
        for index in SECOND:
            one.start_consumer(index, group="default-2", max_session_fragments=LIMIT)
        await one.write(visits, 400)
        await one.close_all()
        second = Fleet(replace(one.where, group="default-2"), zookeeper, tmp_path, QUIET)
        await second.committed({n: len(await one.where.log(n)) - 1 for n in range(STREAMS)})
        await one.leave()

        requests = [await request_of(one, group) for group in ("default", "default-2")]
        results = [await asyncio.to_thread(audit, spark, request) for request in requests]
        delivered = [len(await where.delivered()) for where in (one.where, second.where)]
        heads = await second.where.heads()

    assert [found_in(result) for result in results] == [{}, {}], [one["examples"] for one in results]
    assert [result["verdict"] for result in results] == ["exact", "exact"]
    assert [result["judged"] for result in results] == delivered
    assert sum(head.counts.covered for head in heads.values()) > 0
