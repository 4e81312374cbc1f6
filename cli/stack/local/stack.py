"""The local stack as an async context manager: ZooKeeper, Kafka, producer, consumers, queue and control.

Entering it starts everything in order and returns when all are ready; leaving it stops everything in the
reverse order. Used by `baton up`, `baton demo` and the end-to-end tests, which kill, pause, stop and add
consumers through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import replace
from types import TracebackType
from typing import Self

from cli.stack.jars.downloads import fetch_jars
from cli.stack.jars.java import find_java
from cli.stack.local.programs import StackProcesses
from cli.stack.options import StackOptions, lake_of, ports_of
from cli.stack.processes.identity import identify
from cli.stack.processes.probes import check_ports
from cli.stack.processes.state import ProcessState, StackState, forget_state, lock_home, save_state
from cli.stack.processes.supervisor import ProcessSpec, Report, SupervisedProcess
from cli.stack.secured.locks import OPERATOR, StackLocks, make_locks
from cli.stack.servers.servers import LOOPBACK
from shared.errors import NotFound
from shared.kafka.connect.access import KafkaAccess
from shared.model.names import Names
from shared.together import together


class LocalStack:
    """A running local stack; `report` is called with every change of its processes.

    >>> LocalStack(StackOptions(port_offset=100)).control_url
    'http://127.0.0.1:8100'
    """

    def __init__(self, options: StackOptions, report: Report = lambda name, change: None) -> None:
        options.check()
        self.options = replace(options, home=options.home.absolute())
        self._report = report
        self._locks: StackLocks | None = None
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
    def kafka_access(self) -> KafkaAccess:
        """How the command line reaches Kafka."""
        address = self.options.kafka_address
        return self._locks.kafka_access(address) if self._locks else KafkaAccess(bootstrap=address)

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
            if self.options.secure:
                self._locks = make_locks(self.options.home, self.options.certificate_port)
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
        """Stops everything in order: consumers, the other services, Kafka, ZooKeeper."""
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
        await self._launch(self._specs.consumer(index)).wait_ready()
        self._save()
        return index

    async def wait_consumer(self, index: int) -> None:
        """Returns when the consumer is ready (again). Raises NotReady."""
        await self.consumer(index).wait_ready()

    @property
    def _specs(self) -> StackProcesses:
        return StackProcesses(self.options, self._locks)

    async def _start_all(self) -> None:
        servers = []
        if self.options.zookeeper is None:
            # both servers start at once: neither needs the other
            servers.append(self._launch(self._specs.zookeeper()))
        if self.options.kafka is None:
            servers.append(self._launch(await self._specs.kafka()))
        await self._wait_ready(servers)
        if self._locks is not None:
            # the services' users, before the services; and what an earlier start has left open
            await self._locks.admit(Names(self.options.namespace), self.options.zookeeper_address)
        workers = range(self.options.spark_workers)
        if workers:
            await self._wait_ready([self._launch(self._specs.spark_master())])
            await self._wait_ready([self._launch(self._specs.spark_worker(index)) for index in workers])
        # the producer first, alone: it creates the stream table that the others wait for
        await self._wait_ready([self._launch(self._specs.producer())])
        consumers = [self._specs.consumer(index) for index in range(self.options.consumers)]
        specs = [*consumers, self._specs.queue(), self._specs.control()]
        await self._wait_ready([self._launch(spec) for spec in specs])

    async def _stop_all(self) -> None:
        consumers = [self.consumer(index) for index in self.consumers]
        services = [p for name in ("producer", "queue", "control") if (p := self._processes.get(name))]
        spark = [process for name, process in self._processes.items() if name.startswith("spark-")]
        servers = [[p] for name in ("kafka", "zookeeper") if (p := self._processes.get(name))]
        # consumers first: to leave in order they need ZooKeeper and Kafka
        for step in (consumers, services, spark, *servers):
            await together(process.stop() for process in step)
            for process in step:
                self._report(process.spec.name, "stopped")

    async def _wait_ready(self, processes: list[SupervisedProcess]) -> None:
        async def one(process: SupervisedProcess) -> None:
            await process.wait_ready()
            self._report(process.spec.name, f"is ready at {process.spec.address}")

        await together(one(process) for process in processes)

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
            queue=self.options.queue_url,
            kafka=self.options.kafka_address,
            kafka_locks=self._locks.kafka_environment(OPERATOR) if self._locks else {},
            tls=self._locks.tls_environment(OPERATOR) if self._locks else {},
            token_file=str(self._locks.token_file) if self._locks else "",
            namespace=self.options.namespace,
            processes=processes,
        )
        save_state(self.options.home, state)


def prepare(options: StackOptions) -> None:
    """Checks Java and downloads missing jars, which takes a while the first time.

    Raises JavaMissing and JarsUnavailable.
    """
    find_java()
    if options.kafka is None:
        fetch_jars("kafka")
    # before anything starts: the first job would otherwise fail, or download for minutes
    fetch_jars("spark")
    if lake_of(options, os.environ).startswith("s3a://"):
        fetch_jars("s3")
