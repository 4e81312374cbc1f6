"""What control has of its runs, for tests and benches: real drivers, without its HTTP face."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from cli.stack.jars.lock import jar_folder
from services.control.adapters.runs.place import SparkPlace
from services.control.adapters.runs.process_group import born_of
from services.control.adapters.runs.runner import SparkRunner
from services.control.adapters.runs.store import RunStore
from services.control.core.runs.run import ENDED, Run, Submission
from services.control.spark.driver.folder import DRIVERS, DriverFolder
from services.control.spark.run.request import ClusterOptions, ZooKeeperPlace
from shared.model.group import GroupSettings

LOCK_TIMEOUT_S = 15.0
"""Of a ZooKeeper session: longer than a busy machine lets a driver stand still."""
RUN_S = 600.0
"""Only a limit: a busy machine may take a minute for what takes seconds."""
LOCAL = ClusterOptions()


class Control:
    """What control has of its runs."""

    def __init__(
        self,
        home: Path,
        kafka: str,
        zookeeper: str,
        namespace: str,
        http: httpx.AsyncClient,
        *,
        master: str = "local[2]",
        cluster: ClusterOptions = LOCAL,
        streams: int = 3,
        lake: str = "",
        jars: str = "",
    ) -> None:
        place = SparkPlace(
            kafka=kafka,
            namespace=namespace,
            lake=lake or str(home / "lake"),
            jars=jars or str(jar_folder("spark")),
            master=master,
            cluster=cluster,
            zookeeper=ZooKeeperPlace(servers=zookeeper, timeout_s=LOCK_TIMEOUT_S),
        )
        self.lake = place.lake
        self.streams = streams
        self.store = RunStore(home / "runs")
        self.runner = SparkRunner(self.store, place, http, timeout_s=RUN_S, kept=10, idle_s=60)

    async def done(self, job: str, **parameters: str | int) -> Run:
        """A run of the job, when it has ended."""
        return await self.ended(await self.begin(job, **parameters))

    async def begin(self, job: str, **parameters: str | int) -> Run:
        """A new run of the job."""
        return await self.runner.start(
            Submission(
                job=job,
                group="default",
                parameters=parameters,
                settings=GroupSettings(),
                streams=self.streams,
            )
        )

    async def ended(self, run: Run) -> Run:
        """The run, when it has ended."""
        async with asyncio.timeout(RUN_S):
            while self.runner.run_of(run.id).state not in ENDED:
                await asyncio.sleep(0.05)
                await self.runner.step()
        return self.runner.run_of(run.id)

    async def end_driver(self, run: Run) -> None:
        """Tells the driver of this run, which waits, to end, and returns when nothing of it is left."""
        folder = DriverFolder(self.store.folder / DRIVERS / run.driver)
        assert folder.give(None)
        async with asyncio.timeout(RUN_S):
            while folder.path.exists() or born_of(run.pid):
                await asyncio.sleep(0.05)
                await self.runner.step()

    def log(self, run: Run) -> str:
        return (self.store.folder_of(run.id) / "driver.log").read_text()


def stack_traces(log: str) -> list[str]:
    """The lines of a driver's log that belong to a stack trace, or report a fault like one."""
    words = ("Traceback", "Exception", "Error", "\tat ")
    return [line for line in log.splitlines() if any(word in line for word in words)]
