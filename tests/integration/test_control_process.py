"""Control as its own process, on real Kafka, ZooKeeper and Spark."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec

from cli.stack.jars.downloads import fetch_jars
from cli.stack.jars.lock import jar_folder
from services.control.adapters.runs.process_group import ProcessGroup
from services.control.adapters.runs.store import RunStore
from shared.kafka.admin.topics import ensure_topics, fragments_topics, sessions_topic
from shared.model.cluster import ClaimNode, MemberNode, StreamNode
from shared.model.group import GroupSettings
from shared.model.head import Counts, Head
from shared.model.names import Names
from shared.model.routing import initial_table
from shared.zookeeper.connection import ZooKeeper
from tests.e2e.service import Service
from tests.integration.test_control_offsets import write_fragments, write_head
from tests.servers import free_port
from tests.waiting import DEADLINE_S, until

HEAD = Head(epoch=4, seq=2, position=5, safe_offset=3, counts=Counts(fragments=5, bytes=50, sessions=1))


class ControlProcess:
    """One control, as `python -m services.control` starts it, and a client of it."""

    def __init__(self, home: Path, kafka: str, zookeeper: str, namespace: str) -> None:
        self.port = free_port()
        self.store = RunStore(home / "runs")
        environment = {
            "BATON_KAFKA": kafka,
            "BATON_ZOOKEEPER": zookeeper,
            "BATON_NAMESPACE": namespace,
            "BATON_PORT": str(self.port),
            "BATON_REFRESH_S": "0.1",
            "BATON_RUNS": str(self.store.folder),
            "BATON_LAKE": str(home / "lake"),
            "BATON_JARS": str(jar_folder("spark")),
            "BATON_SPARK_MASTER": "local[1]",
            "BATON_RUNS_AT_STOP": "end",
        }
        self.http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}", trust_env=False, timeout=DEADLINE_S
        )
        self._service = Service("services.control", home / f"control-{self.port}.log", environment)
        self.start = self._service.start
        self.ended = self._service.ended
        self.tail = self._service.tail

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stops control by the signal, SIGTERM for an orderly stop. Returns the exit code."""
        self._service.signal(how)
        return await self.ended()

    async def until(self, path: str, reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The answer at `path`, once `reached` accepts it."""
        answer: dict[str, Any] = {}

        async def is_so() -> bool:
            nonlocal answer
            with contextlib.suppress(httpx.TransportError):
                response = await self.http.get(path)
                answer = response.json()
                return response.status_code == 200 and reached(answer)
            return False

        await until(is_so, lambda: f"{path}: {answer}; {self.tail()}")
        return answer

    def processes_of(self, run_id: str) -> ProcessGroup:
        """The processes of a run, from control's record."""
        (run,) = (run for run in self.store.load() if run.id == run_id)
        return ProcessGroup(run.pid, run.born)


@contextlib.asynccontextmanager
async def small_baton(kafka: str, zookeeper: str, names: Names) -> AsyncIterator[ZooKeeper]:
    """Two streams with fragments; in `default` a member owns stream 0, which has committed HEAD."""
    await ensure_topics(
        kafka,
        [*fragments_topics(names, 2, 3_600_000), sessions_topic(names, "default", 1, 3_600_000)],
        1,
    )
    await write_fragments(kafka, names, {0: 9, 1: 2})
    await write_head(kafka, names, "default", 0, HEAD)
    async with ZooKeeper(zookeeper, 6.0) as znodes:
        for path in (names.root, names.groups, names.producers):
            await znodes.make_path(path)
        await znodes.create(names.table, initial_table(2).encode())
        await znodes.create(names.group("default"), GroupSettings(gap_ms=77).encode())
        for path in (names.members("default"), names.claims("default"), names.streams("default")):
            await znodes.make_path(path)
        address = f"http://127.0.0.1:{free_port()}"
        member = msgspec.json.encode(MemberNode(address=address))
        await znodes.create(names.member("default", "m0"), member, ephemeral=True)
        node = msgspec.json.encode(StreamNode(epoch=4, owner="m0"))
        await znodes.create(names.stream("default", 0), node)
        claim = msgspec.json.encode(ClaimNode(member="m0", epoch=4))
        await znodes.create(names.claim("default", 0), claim, ephemeral=True)
        yield znodes


async def test_control_shows_the_cluster_as_it_is(
    tmp_path: Path, kafka: str, zookeeper: str, namespace: str
) -> None:
    """Claims, heads and ends from real servers; a lost claim leaves its stream unowned."""
    names = Names(namespace)
    control = ControlProcess(tmp_path, kafka, zookeeper, namespace)
    async with control.http, small_baton(kafka, zookeeper, names) as znodes:
        control.start()

        # not before each log has a leader
        before = await control.until(
            "/streams", lambda answer: bool(answer["streams"]) and answer["totals"]["lag"] is not None
        )
        groups = (await control.http.get("/groups")).json()["groups"]
        members = (await control.http.get("/members")).json()["members"]
        pin = {"kind": "move", "stream": 1, "to": "m0"}
        begun = await control.http.post("/operations", json=pin)
        await control.until("/streams/1", lambda answer: answer["pinned_to"] == "m0")
        waiting = await control.until(begun.headers["location"], lambda answer: answer["state"] == "running")
        silent = await control.http.post("/operations", json={"kind": "drain", "member": "m0"})
        await znodes.delete(names.claim("default", 0))
        after = await control.until("/streams", lambda answer: answer["streams"][0]["owner"] is None)

        assert await control.stop() == 0

    row = before["streams"][0]
    assert (row["owner"], row["epoch"], row["position"], row["end"], row["lag"]) == ("m0", 4, 5, 9, 4)
    assert row["safe_offset"] == 3
    assert before["totals"]["sessions"] == 1
    assert [stream["lag"] for stream in before["streams"]] == [4, 2]
    assert groups[0]["settings"]["gap_ms"] == 77
    assert (begun.status_code, waiting["why"]) == (202, "m0 has not claimed stream 1 yet")
    assert (silent.status_code, silent.json()["detail"]) == (503, "m0 does not answer")
    assert [(member["id"], member["streams"], member["answers"]) for member in members] == [
        ("m0", [0], False)
    ]
    assert (after["streams"][0]["state"], after["streams"][0]["epoch"]) == ("unowned", 4)


async def test_a_real_run_is_adopted_and_leaves_no_process(
    tmp_path: Path, kafka: str, zookeeper: str, namespace: str
) -> None:
    """Cancelled, or ended with control, while Spark runs: driver and JVM go.

    A run outlives a control that was killed, or stopped in order with BATON_RUNS_AT_STOP=keep: the next one
    goes on with it, and it succeeds. Beside a living control, none starts on the same folder.
    """
    fetch_jars("spark", quiet=True)
    control, second = (ControlProcess(tmp_path, kafka, zookeeper, namespace) for _ in range(2))
    async with control.http, second.http, small_baton(kafka, zookeeper, Names(namespace)):
        control.start(BATON_RUNS_AT_STOP="keep")
        await control.until("/streams", lambda answer: bool(answer["streams"]))

        run = (await control.http.post("/jobs/lake/runs")).json()
        await control.until(f"/runs/{run['id']}", lambda answer: answer["state"] != "starting")
        cancelled = (await control.http.delete(f"/runs/{run['id']}")).json()
        await until(control.processes_of(run["id"]).is_empty)

        other = (await control.http.post("/jobs/lake/runs")).json()
        await control.until(f"/runs/{other['id']}", lambda answer: answer["state"] == "running")
        driver = control.processes_of(other["id"])
        os.killpg(driver.leader, signal.SIGSTOP)  # so that the run lasts
        assert await control.stop(signal.SIGKILL) == -signal.SIGKILL
        control.start(BATON_RUNS_AT_STOP="keep")
        await control.until(f"/runs/{other['id']}", lambda answer: answer["state"] == "running")
        second.start()
        assert await second.ended() != 0
        assert "give this one another BATON_RUNS" in second.tail()
        assert await control.stop() == 0
        assert driver.is_alive()
        control.start()
        await control.until(f"/runs/{other['id']}", lambda answer: answer["state"] == "running")
        assert await control.stop() == 0

        control.start()
        await control.until("/streams", lambda answer: bool(answer["streams"]))
        last = (await control.http.post("/jobs/lake/runs")).json()
        await control.until(f"/runs/{last['id']}", lambda answer: answer["state"] != "starting")
        assert await control.stop(signal.SIGKILL) == -signal.SIGKILL
        control.start()
        await control.until(f"/runs/{last['id']}", lambda answer: answer["state"] == "succeeded")
        assert await control.stop() == 0

    assert cancelled["state"] == "cancelled"
    await until(driver.is_empty)
    states = {one.id: one.state for one in control.store.load()}
    assert states == {run["id"]: "cancelled", other["id"]: "cancelled", last["id"]: "succeeded"}
