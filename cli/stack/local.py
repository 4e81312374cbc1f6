"""The local stack as an async context manager: ZooKeeper, Kafka, producer, consumers and control.

Entering it starts everything in order and returns when all are ready; leaving it stops everything in the
reverse order. Used by `baton up`, `baton demo` and the end-to-end tests, which kill, pause, stop and add
consumers through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from cli.stack.faults import NotReady
from cli.stack.identity import identify
from cli.stack.jars import fetch_jars
from cli.stack.java import find_java, pyspark_jars
from cli.stack.leash import on_leash
from cli.stack.lock import class_path, jar_folder, read_lock
from cli.stack.options import StackOptions, environment_of, ports_of
from cli.stack.probes import check_ports, is_ready, kafka_answers, zookeeper_answers
from cli.stack.servers import (
    LOOPBACK,
    kafka_argv,
    kafka_format_argv,
    new_cluster_id,
    prepare_kafka,
    prepare_zookeeper,
    zookeeper_argv,
)
from cli.stack.state import ProcessState, StackState, forget_state, lock_home, save_state
from cli.stack.supervisor import ProcessSpec, Report, SupervisedProcess, last_line
from shared.errors import NotFound

FORMAT_TIMEOUT_S = 60.0
_CHECKOUT = Path(__file__).parents[2]


class LocalStack:
    """A running local stack; `report` is called with every change of its processes.

    >>> LocalStack(StackOptions(port_offset=100)).control_url
    'http://127.0.0.1:8100'
    """

    def __init__(self, options: StackOptions, report: Report = lambda name, change: None) -> None:
        options.check()
        self.options = replace(options, home=options.home.absolute())
        self._report = report
        self._processes: dict[str, SupervisedProcess] = {}
        self._ready = False
        self._exit = contextlib.AsyncExitStack()
        self._tasks = asyncio.TaskGroup()

    def __repr__(self) -> str:
        return f"<LocalStack in {self.options.home}: {', '.join(self._processes)}>"

    @property
    def control_url(self) -> str:
        """Base URL of control."""
        return self.options.control_url

    @property
    def producer_url(self) -> str:
        """Base URL of the producer."""
        return self.options.producer_url

    @property
    def consumers(self) -> list[int]:
        """The indices of the supervised consumers, ascending."""
        # the names are the only list: a consumer that was stopped for good is not in it
        names = (name.partition("consumer-")[2] for name in self._processes)
        return sorted(int(index) for index in names if index)

    def process(self, name: str) -> SupervisedProcess:
        """The process named zookeeper, kafka, producer, control, consumer-0 … Raises NotFound."""
        try:
            return self._processes[name]
        except KeyError:
            raise NotFound(f"the local stack has no process {name}") from None

    def consumer(self, index: int) -> SupervisedProcess:
        """The process of consumer `index`. Raises NotFound."""
        return self.process(f"consumer-{index}")

    async def __aenter__(self) -> Self:
        """Starts everything. Raises BatonError after stopping what had started."""
        prepare(self.options)
        # undone in the reverse order: stop the processes, end their tasks, forget the state, release the lock
        try:
            self._exit.enter_context(lock_home(self.options.home))
            check_ports(LOOPBACK, ports_of(self.options))
            self._exit.callback(forget_state, self.options.home)
            await self._exit.enter_async_context(self._tasks)
            self._exit.push_async_callback(self._stop_all)
            await self._start_all()
            self._ready = True
            self._save()
        except BaseException:
            await self._exit.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops everything in order: consumers, producer and control, Kafka, ZooKeeper."""
        # the exit stack does not get the error: it would cancel the tasks instead of stopping them in order
        await self._exit.aclose()

    async def kill_consumer(self, index: int, *, restart: bool = True) -> None:
        """Sends SIGKILL and returns when the consumer is dead; it restarts after a delay, or never."""
        await self.consumer(index).kill(restart=restart)
        if not restart:
            del self._processes[f"consumer-{index}"]
            self._save()

    async def stop_consumer(self, index: int) -> None:
        """Stops a consumer in order, so that it releases its streams; it does not restart."""
        await self.consumer(index).stop()
        del self._processes[f"consumer-{index}"]
        self._save()

    async def add_consumer(self) -> int:
        """Starts a consumer at the lowest free index and returns the index when it is ready."""
        index = next(n for n in range(len(self.consumers) + 1) if n not in self.consumers)
        check_ports(LOOPBACK, {f"consumer-{index}": self.options.consumer_port(index)})
        await self._launch(self._consumer(index)).wait_ready()
        self._save()
        return index

    async def wait_consumer(self, index: int) -> None:
        """Returns when the consumer is ready (again). Raises NotReady."""
        await self.consumer(index).wait_ready()

    async def _start_all(self) -> None:
        servers = []
        if self.options.zookeeper is None:
            # both servers start at once: neither needs the other
            servers.append(self._launch(self._zookeeper()))
        if self.options.kafka is None:
            servers.append(self._launch(await self._kafka()))
        await self._wait_ready(servers)
        # the producer first, alone: it creates the stream table that the others wait for
        await self._wait_ready([self._launch(self._producer())])
        specs = [*(self._consumer(index) for index in range(self.options.consumers)), self._control()]
        await self._wait_ready([self._launch(spec) for spec in specs])

    async def _stop_all(self) -> None:
        consumers = [self.consumer(index) for index in self.consumers]
        services = [p for name in ("producer", "control") if (p := self._processes.get(name))]
        servers = [[p] for name in ("kafka", "zookeeper") if (p := self._processes.get(name))]
        # consumers first: to leave in order they need ZooKeeper and Kafka
        for step in (consumers, services, *servers):
            await asyncio.gather(*(process.stop() for process in step))
            for process in step:
                self._report(process.spec.name, "stopped")

    async def _wait_ready(self, processes: list[SupervisedProcess]) -> None:
        async def one(process: SupervisedProcess) -> None:
            await process.wait_ready()
            self._report(process.spec.name, f"is ready at {process.spec.address}")

        # as tasks, so that the first failure ends the waits for the others
        waiting = [asyncio.create_task(one(p), name=f"wait for {p.spec.name}") for p in processes]
        try:
            await asyncio.gather(*waiting)
        finally:
            for task in waiting:
                task.cancel()

    def _launch(self, spec: ProcessSpec) -> SupervisedProcess:
        process = SupervisedProcess(spec, self._report, self._save)
        self._processes[spec.name] = process
        self._tasks.create_task(process.run(), name=spec.name)
        return process

    def _save(self) -> None:
        supervisor = identify(os.getpid())
        if supervisor is None:  # neither /proc nor ps: then `baton down` cannot find this stack
            return
        processes = [
            ProcessState(name=name, address=process.spec.address, identity=process.identity)
            for name, process in self._processes.items()
        ]
        state = StackState(
            supervisor=supervisor,
            ready=self._ready,
            control=self.control_url,
            producer=self.producer_url,
            kafka=self.options.kafka_address,
            namespace=self.options.namespace,
            processes=processes,
        )
        save_state(self.options.home, state)

    # the processes

    def _zookeeper(self) -> ProcessSpec:
        options = self.options.zookeeper_options
        prepare_zookeeper(options)
        return ProcessSpec(
            name="zookeeper",
            # ZooKeeper itself comes with PySpark, so it needs no download
            argv=zookeeper_argv(options, find_java(), pyspark_jars()),
            log=self._log("zookeeper"),
            is_ready=lambda: zookeeper_answers(options.address),
            address=options.address,
            environment=os.environ,
        )

    async def _kafka(self) -> ProcessSpec:
        options = self.options.kafka_options
        prepare_kafka(options)
        jars = class_path(jar_folder("kafka"), read_lock("kafka"))
        # Kafka refuses to start on a storage that is not formatted
        if not options.is_formatted:
            await run_once(kafka_format_argv(options, find_java(), jars, new_cluster_id()))
        return ProcessSpec(
            name="kafka",
            argv=kafka_argv(options, find_java(), jars),
            log=self._log("kafka"),
            is_ready=lambda: kafka_answers(options.address),
            address=options.address,
            environment=os.environ,
            ready_timeout_s=120.0,
        )

    def _producer(self) -> ProcessSpec:
        return self._service("producer", "producer", self.options.producer_port)

    def _consumer(self, index: int) -> ProcessSpec:
        name = f"consumer-{index}"
        return self._service(name, "consumer", self.options.consumer_port(index), member=name)

    def _control(self) -> ProcessSpec:
        home = self.options.home
        # inside the home, so that a stack leaves nothing elsewhere
        folders = {"lake": str(home / "lake"), "runs": str(home / "runs"), "jars": str(jar_folder("spark"))}
        return self._service("control", "control", self.options.control_port, **folders)

    def _service(self, name: str, service: str, port: int, **own: str) -> ProcessSpec:
        # -P and the working folder: a package `shared` in the current folder must not hide ours
        path = os.pathsep.join(filter(None, (str(_CHECKOUT), os.environ.get("PYTHONPATH"))))
        base = {**os.environ, "PYTHONPATH": path}
        return ProcessSpec(
            name=name,
            argv=[sys.executable, "-P", "-m", f"services.{service}"],
            log=self._log(name),
            is_ready=lambda: is_ready(LOOPBACK, port),
            address=f"http://{LOOPBACK}:{port}",
            environment=environment_of(self.options, port, base, **own),
            folder=self.options.home,
        )

    def _log(self, name: str) -> Path:
        return self.options.home / "logs" / f"{name}.log"


def prepare(options: StackOptions) -> None:
    """Checks Java and downloads missing jars, which takes a while the first time.

    Raises JavaMissing and JarsUnavailable.
    """
    find_java()
    if options.kafka is None:
        fetch_jars("kafka")
    # before anything starts: the first job would otherwise fail, or download for minutes
    fetch_jars("spark")


async def run_once(argv: list[str]) -> None:
    """Runs a command to its end. Raises NotReady with the last line of its output when it fails."""
    process = await asyncio.create_subprocess_exec(
        *on_leash(argv),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(FORMAT_TIMEOUT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        output = b"it took too long"
    finally:
        with contextlib.suppress(ProcessLookupError):
            # also after a cancellation, which leaves it running
            process.send_signal(signal.SIGKILL)
    if process.returncode != 0:
        raise NotReady(f"Kafka's storage cannot be formatted: {last_line(output) or 'no output'}")
