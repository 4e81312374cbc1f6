"""A Spark cluster whose machines share nothing with the driver: a bare Python, and a folder each.

Its processes see no environment of ours: neither the project nor its packages are on their paths.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cli.stack.servers.spark_servers import spark_environment, spark_master_argv, spark_worker_argv
from tests.servers import free_port

STARTED_S = 60.0
MEMORY = "600m"


@dataclass(slots=True)
class SparkCluster:
    """A master and its workers; `home` has a folder for each worker."""

    home: Path
    master: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def folders(self) -> list[Path]:
        """The working folders of the executors so far."""
        return sorted(path for path in self.home.glob("worker-*/app-*/*") if path.is_dir())

    def executors(self, application: str = "") -> list[int]:
        """The processes of the executors that live: of all drivers, or of one by Spark's id of it."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                line = path.read_bytes().decode(errors="replace")
                if "CoarseGrainedExecutorBackend" in line:
                    found.append(int(path.parent.name))
        return [pid for pid in found if self._is_ours(pid, application)]

    def _is_ours(self, pid: int, application: str) -> bool:
        with contextlib.suppress(OSError):
            folder = Path(os.readlink(f"/proc/{pid}/cwd"))
            return folder.is_relative_to(self.home) and (not application or folder.parent.name == application)
        return False

    def signal_executors(self, number: signal.Signals, application: str) -> None:
        """Sends the signal to all executors of a driver."""
        for pid in self.executors(application):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@contextlib.contextmanager
def spark_cluster(home: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """A cluster with workers of one core, during the block."""
    python = home / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(python)], check=True)
    path = f"{python / 'bin'}:/usr/bin:/bin"
    environment = spark_environment() | {"PATH": path, "HOME": str(home)}
    cluster = SparkCluster(home, f"spark://127.0.0.1:{free_port()}")

    def start(name: str, argv: list[str]) -> None:
        folder = home / name
        folder.mkdir()
        with (home / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                argv,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        cluster.processes.append(process)

    try:
        start("master", spark_master_argv(int(cluster.master.rpartition(":")[2])))
        await_line(home / "master.log", "I have been elected leader")
        for number in range(workers):
            name = f"worker-{number}"
            start(name, spark_worker_argv(0, cluster.master, home / name, "1g"))
        for number in range(workers):
            await_line(home / f"worker-{number}.log", "Successfully registered with master")
        yield cluster
    finally:
        for pid in cluster.executors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in reversed(cluster.processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def await_line(log: Path, words: str) -> None:
    """Waits until the log has a line that the regular expression matches."""
    deadline = time.monotonic() + STARTED_S
    while not re.search(words, log.read_text(errors="replace")):
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.05)
