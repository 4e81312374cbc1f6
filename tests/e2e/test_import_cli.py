"""The command line on a running stack: a log goes in, and every command reports the same about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cli.demo.log import generated_log
from cli.demo.truth import TruthCheck
from cli.importing.reading.content import ContentHash
from cli.kafka.sessions import open_sessions
from cli.stack.local.stack import LocalStack
from shared.model.names import Names
from tests.e2e.stack import baton, baton_json, settled, stack_in

STREAMS = 5
COLUMNS = {
    *("group", "topic", "partition", "current_offset", "log_end_offset", "lag"),
    *("consumer_id", "host", "client_id"),
}


async def import_log(stack: LocalStack, log: Path, *fields: str) -> tuple[int, dict[str, Any]]:
    """Imports a log and waits until it is delivered: exit code and summary."""
    where = ("--url", stack.producer_url, "--control", stack.control_url)
    code, out, _ = await baton("import", str(log), *fields, *where, "--wait", "-o", "json")
    return code, json.loads(out)


async def test_the_commands_agree_on_what_was_imported(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """Made-up visits are delivered, and streams, members, lag, groups and plan say so.

    Of a second log the lines that cannot be read are counted by reason, the rest goes in, the exit code is 1.
    """
    log = generated_log(tmp_path, 60, 3)
    visits = log.visits
    assert visits is not None
    spoiled = tmp_path / "given.tsv"
    spoiled.write_bytes(b"host\ttime\na\t807256800\nb\tnoon\n\t807256801\nc\t807256802\n")

    async with stack_in(tmp_path, kafka, zookeeper, namespace, STREAMS) as stack:
        fields = ("--format", "ndjson", "--key", "key", "--time", "time", "--end", "end")
        code, summary = await import_log(stack, log.path, *fields)
        await settled(stack)
        streams = await baton_json(stack, "streams")
        members = (await baton_json(stack, "members"))["members"]
        lag = (await baton_json(stack, "lag", "--namespace", stack.options.namespace))["lag"]
        (producer,) = (await baton_json(stack, "producers"))["producers"]
        (group,) = (await baton_json(stack, "groups"))["groups"]
        plan = await baton_json(stack, "plan")
        jobs = (await baton_json(stack, "jobs"))["jobs"]
        content = ContentHash()
        content.update(log.path.read_bytes())
        check = TruthCheck(visits, log.path.name, content.content.digest)
        topic = Names(stack.options.namespace).sessions("default")
        async with open_sessions(stack.options.kafka_address, topic) as delivered:
            async for one in delivered.everything():
                check.add(one.session)
        tsv = ("--format", "tsv", "--key", "host", "--time", "time")
        spoiled_code, spoiled_summary = await import_log(stack, spoiled, *tsv)
        totals = (await settled(stack))["totals"]

    assert code == 0
    assert summary["lines"] == summary["accepted"] == len(visits.lines)
    assert check.finish().examples == []
    assert streams["totals"]["delivered"] == len(visits.lines)
    assert streams["totals"]["sessions"] == len(visits.truth)
    assert sorted(row["stream"] for row in streams["streams"]) == list(range(STREAMS))
    assert sorted(len(member["streams"]) for member in members) == [1, 2, 2]
    assert [set(row) for row in lag] == [COLUMNS] * STREAMS
    assert sum(row["log_end_offset"] for row in lag) == len(visits.lines) + STREAMS
    assert {row["lag"] for row in lag} == {0}
    assert producer["address"] == stack.producer_url
    assert (group["name"], group["streams"], len(group["members"])) == ("default", STREAMS, 3)
    assert plan["moves"] == []
    assert [job["name"] for job in jobs] == ["lake", "reports", "audit", "maintain"]
    assert spoiled_code == 1
    assert [spoiled_summary[name] for name in ("lines", "unparsed", "accepted")] == [4, 2, 2]
    assert {row["reason"]: row["line"] for row in spoiled_summary["reasons"]} == {"time": 3, "key": 4}
    assert totals["fragments"] == streams["totals"]["fragments"] + 2
    assert totals["sessions"] == streams["totals"]["sessions"] + 2
