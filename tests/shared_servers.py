"""Shares one broker and one ZooKeeper among all pytest workers.

The process that started the workers starts a server when a worker first asks for it. So the server outlives
every worker, and dies with the run.
"""

from __future__ import annotations

import contextlib
import threading
from multiprocessing.connection import Client, Listener

from tests.servers import KafkaServer, ZooKeeperServer, temporary_home

Kind = type[KafkaServer] | type[ZooKeeperServer]


class SharedServers:
    """Starts the servers that workers ask for, until `close`."""

    def __init__(self) -> None:
        self._listener = Listener(family="AF_UNIX")
        self._addresses: dict[Kind, str] = {}
        self._running = contextlib.ExitStack()
        threading.Thread(target=self._answer, daemon=True).start()

    @property
    def door(self) -> str:
        """Where workers ask."""
        return str(self._listener.address)

    def close(self) -> None:
        """Ends all servers."""
        self._listener.close()
        self._running.close()

    def _answer(self) -> None:
        while True:
            try:
                asked = self._listener.accept()
            except OSError:  # closed
                return
            with asked, contextlib.suppress(EOFError, OSError):  # a worker may die while it waits
                try:
                    answer: str | Exception = self._started(*asked.recv())
                except RuntimeError as error:  # the test that asked fails, and the next one tries again
                    answer = error
                asked.send(answer)

    def _started(self, kind: Kind, ports: tuple[int, ...]) -> str:
        if kind not in self._addresses:
            home = self._running.enter_context(temporary_home(kind.__name__))
            server = kind(home, *ports)
            server.start()
            self._running.callback(server.kill)
            self._addresses[kind] = server.address
        return self._addresses[kind]


def address_of(kind: Kind, door: str, *ports: int) -> str:
    """The address of the run's server of this kind. Where none runs yet, it starts on these ports: they are
    the worker's own, so that no other one takes them meanwhile.
    """
    with Client(door) as asking:
        asking.send((kind, ports))
        answer = asking.recv()
    if isinstance(answer, Exception):
        raise answer
    return str(answer)
