"""What the world of a chaos run is made of: a broker behind proxies, the ways of a service, its process."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cli.stack.leash import on_leash
from tests.e2e.fleet import CHECKOUT, poll
from tests.e2e.proxy import Proxy
from tests.servers import KafkaServer

LOG_TAIL = 1200
TASKS_S = 5.0


def steady_ports(count: int) -> list[int]:
    """Free ports below those that outgoing connections get: they stay free while their servers are down.

    They are above those of the local stacks that other tests start.
    """
    found: list[int] = []
    for port in random.sample(range(29_200, 32_700), 3_500):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("there are not enough free ports on this machine")


@dataclass(frozen=True, slots=True)
class Links:
    """The ways of one service: to Kafka, to ZooKeeper, and those of others to its HTTP port."""

    kafka: Proxy
    zookeeper: Proxy
    http: Proxy

    @property
    def all(self) -> tuple[Proxy, Proxy, Proxy]:
        return self.kafka, self.zookeeper, self.http


class ProxiedKafka(KafkaServer):
    """A broker with a listener for each name in `advertised`: that address is what its clients are told."""

    def __init__(self, home: Path, port: int, ports: Mapping[str, int]) -> None:
        super().__init__(home, port)
        self._ports = ports
        self.advertised: dict[str, str] = {}

    def prepare(self) -> None:
        """The usual configuration, its listeners overridden: of two lines Java takes the last."""
        super().prepare()
        controller = f"CONTROLLER://127.0.0.1:{self.options.controller_port}"
        own = {name.upper().replace("-", ""): name for name in self._ports}
        shared = [f"PLAINTEXT://{self.address}", controller]
        at = [f"{label}://127.0.0.1:{self._ports[name]}" for label, name in own.items()]
        told = [f"{label}://{self.advertised[name]}" for label, name in own.items()]
        kinds = [f"{label}:PLAINTEXT" for label in ("CONTROLLER", "PLAINTEXT", *own)]
        with self.options.config.open("a") as config:
            config.write(
                f"listeners={','.join(shared + at)}\nadvertised.listeners={','.join(shared + told)}\n"
                f"listener.security.protocol.map={','.join(kinds)}\n"
                "inter.broker.listener.name=PLAINTEXT\nnum.network.threads=1\n"
            )


class Service:
    """One process of the project, as a user starts it, but that it can tell where it stands."""

    def __init__(self, module: str, log: Path, environment: Mapping[str, str]) -> None:
        self._argv = on_leash([sys.executable, "-m", "tests.e2e.traced", module])
        self._log = log
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self.was_told_to_stop = False
        """By SIGTERM, since its last start; a second one would end it at once."""

    @property
    def is_running(self) -> bool:
        """Whether its process lives, stopped or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of its newest process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts it; to be called when it does not run."""
        assert not self.is_running
        self.was_told_to_stop = False
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._argv,
                cwd=CHECKOUT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        assert self._process is not None
        self.was_told_to_stop |= number == signal.SIGTERM
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code, as soon as it has one."""

        async def is_so() -> bool:
            return not self.is_running

        await poll(is_so, lambda: f"it does not end:\n{self.tasks()}")
        assert self._process is not None
        return self._process.returncode

    def tasks(self) -> str:
        """What it waits for: the stacks of its tasks, once it has told them."""
        before = self._log.stat().st_size
        self.signal(signal.SIGUSR1)
        deadline = time.monotonic() + TASKS_S
        while self._log.stat().st_size == before and time.monotonic() < deadline:
            time.sleep(0.1)
        return self._log.read_text(errors="replace")[before:] or self.told()

    def end(self) -> None:
        """Ends it, however."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def told(self) -> str:
        """Its last words."""
        return self._log.read_text(errors="replace")[-LOG_TAIL:] if self._log.exists() else "nothing"
