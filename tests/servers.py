"""Real servers for tests, on free ports: `KafkaServer` and `ZooKeeperServer`.

A test may stop, kill, pause and restart them; their data survives. They live in a temporary folder and die
with the test process, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cli.stack.faults import PortOccupied
from cli.stack.jars.downloads import fetch_jars
from cli.stack.jars.java import find_java, pyspark_jars
from cli.stack.jars.lock import class_path, jar_folder, read_lock
from cli.stack.options import StackOptions, ports_of
from cli.stack.processes.leash import on_leash
from cli.stack.processes.probes import check_ports, kafka_answers, zookeeper_answers
from cli.stack.servers.servers import (
    KafkaOptions,
    ZooKeeperOptions,
    kafka_argv,
    kafka_format_argv,
    new_cluster_id,
    prepare_kafka,
    prepare_zookeeper,
    zookeeper_argv,
)
from shared.errors import BatonError
from shared.kafka.admin.catalog import TopicSpec
from shared.kafka.admin.topics import ensure_topics

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
SHUT_OUT_S = 1.0
"""Within this time after a pause a controller notices the missing heartbeat."""

_SPAWNER = ThreadPoolExecutor(1, "spawner")
"""Starts every server: the leash watches the thread that forked, and this one lives to the end."""


def share_of_worker(whole: range) -> range:
    """This pytest worker's part of the range: two workers never try the same port."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = len(whole) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return whole[worker * size : (worker + 1) * size]


_RANDOM = random.SystemRandom()
PORTS = share_of_worker(range(29_500, 32_768))
"""Above the ports of local stacks (`free_port_offset`), below those Linux gives to clients.

A client could otherwise take a server's port while the server restarts, or even connect to itself.
"""
OFFSETS = share_of_worker(range(10_000, 20_000))
_UNTRIED = itertools.cycle(_RANDOM.sample(PORTS, len(PORTS)))


def free_port() -> int:
    """A port of 127.0.0.1 at which no process listens; each call returns another one."""
    for port in itertools.islice(_UNTRIED, len(PORTS)):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free on this machine")


def free_port_offset(consumers: int = 8) -> int:
    """A `--port-offset` at which every port of a local stack is free."""
    for _ in range(100):
        offset = _RANDOM.choice(OFFSETS)
        options = StackOptions(port_offset=offset, consumers=consumers, secure=True)
        with contextlib.suppress(PortOccupied):
            check_ports("127.0.0.1", ports_of(options))
            return offset
    raise RuntimeError("no range of ports is free on this machine")


class Server:
    """One server process that tests may start, stop, kill, pause and resume; all of it blocks."""

    def __init__(self, home: Path, address: str) -> None:
        self.home = home
        self.address = address
        self.is_paused = False
        self.resumed_s = float("-inf")
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.address}, pid {self.pid}>"

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Starts it unless it runs, and returns when it answers; call it from a test or fixture."""
        if self.pid is not None:
            return
        self.prepare()
        with (self.home / "output.log").open("ab") as log:
            argv = on_leash(self.argv())
            self._process = _SPAWNER.submit(
                subprocess.Popen, argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            ).result()
        self.wait_until(self.answers)

    def wait_until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        """Returns once `is_so` is true; kills the server and raises RuntimeError when that takes too long."""
        deadline = time.monotonic() + START_TIMEOUT_S
        # in another thread, because a test's event loop may be running in this one
        with ThreadPoolExecutor(1) as prober:
            while not prober.submit(_ask, is_so).result():
                if self.pid is None or time.monotonic() > deadline:
                    self.kill()
                    raise RuntimeError(f"{self!r} is not there in time:\n{self.output()[-3000:]}")
                time.sleep(0.05)

    def stop(self) -> None:
        """Stops it in an orderly way (by force when that takes too long)."""
        if self._process is not None and self.pid is not None:
            self.resume()
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Ends it with SIGKILL."""
        self.is_paused = False
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and stays silent. Returns when every thread of it has stopped."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            # or a thread on another core would still answer what the caller sends next
            with contextlib.suppress(ChildProcessError):  # it had ended already: chaos may have killed it
                os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            self.is_paused = True

    def resume(self) -> None:
        """SIGCONT after a pause; harmless without one."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            if self.is_paused:
                self.is_paused, self.resumed_s = False, time.monotonic()

    def output(self) -> str:
        """What it has printed so far."""
        return (self.home / "output.log").read_text(errors="replace")

    def prepare(self) -> None:
        """Writes its configuration."""
        raise NotImplementedError

    def argv(self) -> list[str]:
        """Its command line."""
        raise NotImplementedError

    async def answers(self) -> bool:
        """Whether it serves requests."""
        raise NotImplementedError


class ZooKeeperServer(Server):
    """ZooKeeper with ticks of 500 ms: ZooKeeper sessions of 1 s and more are possible."""

    def __init__(self, home: Path, port: int | None = None, *, demands_user: bool = False) -> None:
        self.options = ZooKeeperOptions(home=home, port=port or free_port(), demands_user=demands_user)
        super().__init__(home, self.options.address)

    def prepare(self) -> None:
        prepare_zookeeper(self.options)

    def argv(self) -> list[str]:
        return zookeeper_argv(self.options, find_java(), pyspark_jars())

    async def answers(self) -> bool:
        return await zookeeper_answers(self.address)


class KafkaServer(Server):
    """One broker; its storage is formatted at the first start."""

    def __init__(self, home: Path, port: int | None = None) -> None:
        self.options = KafkaOptions(home=home, port=port or free_port(), controller_port=free_port())
        super().__init__(home, self.options.address)
        fetch_jars("kafka", quiet=True)
        self._class_path = class_path(jar_folder("kafka"), read_lock("kafka"))

    def prepare(self) -> None:
        prepare_kafka(self.options)
        if not self.options.is_formatted:
            argv = kafka_format_argv(self.options, find_java(), self._class_path, new_cluster_id())
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, timeout=START_TIMEOUT_S)

    def argv(self) -> list[str]:
        return kafka_argv(self.options, find_java(), self._class_path)

    async def answers(self) -> bool:
        return await kafka_answers(self.address)

    def settle(self) -> None:
        """Returns once no pause has consequences: after a long one the controller fences its broker for a
        moment. A broker left paused is restarted.
        """
        if self.is_paused:
            self.kill()
        self.start()
        self.wait_until(self._creates_topics)

    async def _creates_topics(self) -> bool:
        if time.monotonic() - self.resumed_s < SHUT_OUT_S:
            return False
        try:
            return bool(await ensure_topics(self.address, [TopicSpec(name=f"settled.{time.time_ns()}")], 1))
        except BatonError:
            return False


@contextlib.contextmanager
def temporary_home(name: str) -> Iterator[Path]:
    """A folder for a server's data, removed at the end; its name holds the process id of its owner.

    A killed test run leaves it behind. Other runs may use theirs: remove only those of your own processes.
    """
    home = Path(tempfile.mkdtemp(prefix=f"baton-{name}-{os.getpid()}-"))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _ask(answers: Callable[[], Awaitable[bool]]) -> bool:
    async def ask() -> bool:
        return await answers()

    return asyncio.run(ask())
