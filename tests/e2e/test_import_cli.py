"""The command line on a running stack: a log goes in, and every command tells the same of it."""

from __future__ import annotations

import json
from pathlib import Path

from cli.demo.log import generated_log
from cli.demo.truth import TruthCheck
from cli.kafka.sessions import read_sessions
from shared.model.names import Names
from tests.e2e.stack import Stacks, baton, baton_json, settled

STREAMS = 5
COLUMNS = {
    *("group", "topic", "partition", "current_offset", "log_end_offset", "lag"),
    *("consumer_id", "host", "client_id"),
}


async def test_the_commands_agree_on_what_was_imported(stacks: Stacks, tmp_path: Path) -> None:
    """What was made up is delivered, and streams, members, lag, groups and plan say so."""
    log = generated_log(tmp_path, 60, 3)
    visits = log.visits
    assert visits is not None

    async with stacks(STREAMS) as stack:
        fields = ("--format", "ndjson", "--key", "key", "--time", "time", "--end", "end")
        where = ("--url", stack.producer_url, "--control", stack.control_url)
        code, out, err = await baton("import", str(log.path), *fields, *where, "--wait", "-o", "json")
        summary = json.loads(out)
        await settled(stack)
        streams = await baton_json(stack, "streams")
        members = (await baton_json(stack, "members"))["members"]
        lag = (await baton_json(stack, "lag", "--namespace", stack.options.namespace))["lag"]
        (producer,) = (await baton_json(stack, "producers"))["producers"]
        (group,) = (await baton_json(stack, "groups"))["groups"]
        plan = await baton_json(stack, "plan")
        jobs = (await baton_json(stack, "jobs"))["jobs"]
        check = TruthCheck(visits, log.path.name)
        topic = Names(stack.options.namespace).sessions("default")
        async for batch in read_sessions(stack.options.kafka_address, topic):
            for session in batch:
                check.add(session)

    assert (code, err) == (0, "")
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
    assert [job["name"] for job in jobs] == ["lake", "reports", "audit"]


async def test_an_import_tells_what_it_could_not_send(stacks: Stacks, tmp_path: Path) -> None:
    """Lines that cannot be read are counted with their reason, the rest goes in, and the exit code is 1."""
    log = tmp_path / "given.tsv"
    log.write_bytes(b"host\ttime\na\t807256800\nb\tnoon\n\t807256801\nc\t807256802\n")

    async with stacks(2) as stack:
        fields = ("--format", "tsv", "--key", "host", "--time", "time")
        where = ("--url", stack.producer_url, "--control", stack.control_url)
        code, out, _ = await baton("import", str(log), *fields, *where, "--wait", "-o", "json")
        totals = (await settled(stack))["totals"]

    summary = json.loads(out)
    assert code == 1
    assert (summary["lines"], summary["unparsed"], summary["accepted"]) == (4, 2, 2)
    assert {row["reason"]: row["line"] for row in summary["reasons"]} == {"time": 3, "key": 4}
    assert (totals["fragments"], totals["sessions"]) == (2, 2)
