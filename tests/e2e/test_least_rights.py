"""The services and the command line as principals with exactly the rights that docs/security.md lists."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.kafka.rights import rights_of
from services.queue.core.commands import MAX_LEASED
from services.queue.core.items import MAX_POSTED
from services.queue.core.replica import SNAPSHOT_EVERY
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.admin.topics import ensure_topics, queue_topic
from shared.kafka.admin.users import Right
from shared.kafka.connect.access import KafkaAccess
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import LATEST, list_offsets
from shared.model.names import Names
from shared.service.known_settings import KNOWN
from shared.service.private_files import write_private
from tests.e2e.service import CHECKOUT, Service
from tests.secured_kafka import PASSWORD, SecuredKafka
from tests.servers import free_port
from tests.tables import session, write_sessions
from tests.waiting import until

SETTINGS = {
    "BATON_STREAMS": "2",
    "BATON_COMMIT_S": "0.1",
    "BATON_GAP_MS": "1000",
    "BATON_LATENESS_MS": "0",
    "BATON_IDLE_MS": "3000",
    "BATON_MAX_REPLAY_FRAGMENTS": "100",
    "BATON_REFRESH_S": "0.2",
    "BATON_FRESHNESS_S": "0.2",
}


ROUNDS = 6
IDS = SNAPSHOT_EVERY
USED = ("producer", "consumer", "queue", "control", "command line", "repairs")
"""The principals whose work is done here; tests/integration/test_spark_locked.py has the last one."""


class LockedStack:
    """A producer, a member, a queue's worker and control, each as a process and a principal of its own."""

    def __init__(self, kafka: SecuredKafka, zookeeper: str, names: Names, home: Path) -> None:
        self.kafka = kafka
        self.names = names
        self.services: dict[str, Service] = {}
        self.urls: dict[str, str] = {}
        self.home = home
        common = {**SETTINGS, "BATON_ZOOKEEPER": zookeeper, "BATON_NAMESPACE": names.namespace}
        ways = {
            "producer": kafka.by_secret("SCRAM-SHA-512", "producer"),
            "consumer": kafka.by_certificate("consumer"),
            "queue": kafka.by_secret("SCRAM-SHA-256", "queue"),
            "control": kafka.by_secret("OAUTHBEARER", "control"),
        }
        for name, access in ways.items():
            port = free_port()
            environment = {
                **common,
                **access.variables,
                "BATON_PORT": str(port),
                "BATON_RUNS": str(home / "runs"),
                "BATON_LAKE": str(home / "lake"),
            }
            self.services[name] = Service(f"services.{name}", home / f"{name}.log", environment)
            self.urls[name] = f"http://127.0.0.1:{port}"

    async def ready(self, name: str) -> None:
        async with httpx.AsyncClient() as http:

            async def is_ready() -> bool:
                try:
                    return (await http.get(f"{self.urls[name]}/readyz")).status_code == 200
                except httpx.TransportError:
                    return False

            await until(is_ready, lambda: self.services[name].tail())

    async def baton(self, *arguments: str, by: str = "command-line", code: int = 0) -> Any:
        """What a command prints, run by this principal, as JSON."""
        access = self.kafka.by_secret("PLAIN", by)
        own = {"BATON_NAMESPACE": self.names.namespace, "BATON_PRODUCER_URL": self.urls["producer"]}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cli.main", *arguments),
            cwd=self.home,
            env={"PYTHONPATH": str(CHECKOUT), "HOME": str(self.home), **access.variables, **own},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, faults = await process.communicate()
        assert process.returncode == code, printed.decode() + faults.decode()
        return json.loads(printed) if "json" in arguments else None


@pytest.fixture
async def stack(
    secured_kafka: SecuredKafka, zookeeper: str, namespace: str, tmp_path: Path
) -> AsyncIterator[LockedStack]:
    """Started, with exactly the least rights."""
    names = Names(namespace)
    for principal in USED:
        await secured_kafka.allow(principal, names)
    stack = LockedStack(secured_kafka, zookeeper, names, tmp_path)
    for service in stack.services.values():
        service.start()
    yield stack
    for service in stack.services.values():
        service.end()


async def test_a_service_that_kafka_does_not_let_in_says_so_and_recovers(stack: LockedStack) -> None:
    """In its log and in `/readyz`, without the secret; a mended file is enough."""
    for name, service in stack.services.items():
        service.end()
        access = stack.kafka.by_secret("SCRAM-SHA-256", name, "mistyped")
        service.start(**cleared(access))
        async with httpx.AsyncClient(base_url=stack.urls[name]) as http:

            async def is_reported() -> bool:
                with contextlib.suppress(httpx.TransportError):
                    answer = await http.get("/readyz")
                    return (
                        answer.status_code == 503 and "Kafka refuses the user or the password" in answer.text
                    )
                return False

            await until(is_reported, service.tail)
        assert f"user '{name}', SCRAM-SHA-256, {access.password_file}" in service.tail()
        assert "mistyped" not in service.tail()

        write_private(Path(access.password_file), PASSWORD.encode())
        await stack.ready(name)


def cleared(access: KafkaAccess) -> dict[str, str]:
    """Its variables, and every other one empty."""
    return dict.fromkeys((name for name in KNOWN if name.startswith("BATON_KAFKA_")), "") | access.variables


def listed(rights: list[Right]) -> set[tuple[str, str, str]]:
    return {(right.resource, right.name, does) for right in rights for does in right.operations}


async def test_the_least_rights_suffice_and_each_is_used(stack: LockedStack) -> None:
    """From fragments to sessions, rejects, their replay, and repairs, over a restart; none is missing."""
    for name in stack.services:
        await stack.ready(name)
    await send_fragments(stack)
    stack.services["consumer"].signal(signal.SIGTERM)
    await stack.services["consumer"].ended()
    stack.services["consumer"].start()

    async def are_delivered() -> bool:
        found = await stack.baton("sessions", "--output", "json")
        return {one["key"] for one in found["sessions"]} == {"long", *(f"k{n}" for n in range(ROUNDS))}

    await until(are_delivered, lambda: stack.services["consumer"].tail())
    await compare_with_the_lake(stack)
    await restart_control(stack)
    await ask_the_producer(stack)
    await operate(stack)
    await work_on_queues(stack)
    await use_command_line(stack)

    for principal in USED:
        granted = listed(rights_of(principal, stack.names))
        used = stack.kafka.used_rights(principal.replace(" ", "-"))
        assert {right for right in used if right[1].startswith(stack.names.namespace)} == granted, principal
    tails = "".join(service.tail() for service in stack.services.values())
    assert "right is missing" not in tails


async def send_fragments(stack: LockedStack) -> None:
    """A session that outgrows a replay and is parked, short ones, and rejects."""
    async with httpx.AsyncClient(base_url=stack.urls["producer"]) as http:
        for number in range(ROUNDS):
            fragments: list[Any] = [{"key": "long", "data": n} for n in range(60)]
            fragments += [{"key": f"k{number}", "end": True}, {"key": 7}]
            answer = await http.post("/fragments", json=fragments)
            assert answer.json()["accepted"] == 61
            await asyncio.sleep(0.3)


async def compare_with_the_lake(stack: LockedStack) -> None:
    """Control reads the sessions that a lake lacks, once there is one, and the newest fragments."""
    write_sessions(stack.home / "lake" / stack.names.namespace, [session(0)])
    async with httpx.AsyncClient(base_url=stack.urls["control"]) as http:

        async def is_behind() -> bool:
            rows = (await http.get("/tables")).json()["freshness"]
            return any(row["behind_records"] > 0 and row["retention_ms"] for row in rows)

        await until(is_behind, lambda: stack.services["control"].tail())
        pages = [(await http.get(f"/streams/{n}/fragments")).json() for n in range(2)]
        assert any(page["fragments"] for page in pages)


async def restart_control(stack: LockedStack) -> None:
    """Control reads back the history that it has written."""
    control, place = stack.services["control"], (stack.names.history, 0)
    async with Cluster(stack.kafka.root) as cluster:

        async def has_sample() -> bool:
            return (await list_offsets(cluster, [place], LATEST))[place] > 0

        await until(has_sample, control.tail)
    control.end()
    control.start()
    await stack.ready("control")
    async with httpx.AsyncClient(base_url=stack.urls["control"]) as http:

        async def is_read_back() -> bool:
            answer = await http.get("/history")
            return answer.status_code == 200 and any(lag is not None for lag in answer.json()["lag"])

        await until(is_read_back, control.tail)


async def ask_the_producer(stack: LockedStack) -> None:
    """Control gets the producer's counts from it."""
    async with httpx.AsyncClient(base_url=stack.urls["control"]) as http:

        async def is_known() -> bool:
            (row,) = (await http.get("/producers")).json()["producers"]
            return row["answers"] and row["accepted_per_s"] is not None

        await until(is_known, stack.services["control"].tail)


async def operate(stack: LockedStack) -> None:
    """Control writes what an operator does to the topic from which it reads events, and says where another
    group might start.
    """
    async with httpx.AsyncClient(base_url=stack.urls["control"]) as http:
        answer = await http.post("/operations", json={"kind": "rebalance", "reason": "to see it"})
        assert answer.status_code == 202, answer.text
        answer = await http.post("/operations", json={"kind": "rewind", "as": "again", "dry_run": True})
        assert answer.status_code == 200, answer.text

        async def is_told() -> bool:
            told = (await http.get("/events?kind=action")).json()["events"]
            return [(event["what"], event["why"]) for event in told] == [("rebalance", "to see it")]

        await until(is_told, lambda: stack.services["control"].tail())


async def work_on_queues(stack: LockedStack) -> None:
    """So many commands that a snapshot is stored; a queue over sessions; one whose topic was there before."""
    prepared = queue_topic(stack.names, "prepared", 1)
    await ensure_topics(stack.kafka.root, [prepared], 1)
    place, group = (stack.names.queue("q"), 0), stack.names.queue_group("q")
    async with (
        httpx.AsyncClient(base_url=f"{stack.urls['queue']}/queues", timeout=30) as http,
        Cluster(stack.kafka.root) as cluster,
    ):
        for name, settings in (("q", {}), ("prepared", {}), ("over", {"over": "sessions"})):
            assert (await http.put(f"/{name}", json=settings)).status_code == 200
        for first in range(0, IDS, MAX_POSTED):
            items = [{"data": n, "id": str(n)} for n in range(first, first + MAX_POSTED)]
            assert (await http.post("/q/items", json=items)).json()["accepted"] == MAX_POSTED
        # each id is a command of its own
        for _ in range(IDS // MAX_LEASED):
            found = (await http.post("/q/lease", json={"max": MAX_LEASED})).json()["items"]
            await http.post("/q/ack", json={"receipts": [item["receipt"] for item in found]})
        assert (await http.post("/over/lease", json={"max": MAX_LEASED, "wait_s": 5})).json()["items"]

        async def is_committed() -> bool:
            return (await KafkaGroup(cluster, group).committed([place]))[place].offset > 0

        await until(is_committed, stack.services["queue"].tail)
        assert (await http.delete("/prepared")).status_code == 200


async def use_command_line(stack: LockedStack) -> None:
    """Everything that it does in Kafka."""
    rejects = (await stack.baton("rejected", "--output", "json"))["rejected"]
    assert len(rejects) == ROUNDS
    await stack.baton("rejected", "dismiss", rejects[0]["id"])
    # they are rejected again
    await stack.baton("rejected", "replay", "--reason", rejects[0]["reason"], code=1)

    shown = await stack.baton("offsets", "show", stack.names.kafka_group("default"), "--output", "json")
    assert len(shown) == 2
    topic = stack.names.fragments(0)
    await stack.baton("kafka", "record", topic, "0", by="repairs")
    await stack.baton("kafka", "settings", topic, "retention.ms=700000", by="repairs")
    stack.services["consumer"].signal(signal.SIGTERM)
    await stack.services["consumer"].ended()
    await stack.baton("kafka", "forget", "0", "--checkpoints", "--yes", by="repairs")
