"""Servers of one kind that work together: one, or three that replicate."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from tests.servers import Server

S = TypeVar("S", bound=Server, covariant=True)


class ServerGroup(Generic[S]):
    """The servers by number; `address`: all of them, for clients."""

    def __init__(self, nodes: Mapping[int, S]) -> None:
        self.nodes = nodes
        self.address = ",".join(node.address for node in nodes.values())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.address}>"

    def start(self) -> None:
        """Starts what does not run; returns when the group is whole."""
        # together: a server answers only when a majority is there
        with ThreadPoolExecutor(len(self.nodes)) as starting:
            for started in [starting.submit(node.start) for node in self.nodes.values()]:
                started.result()
        next(iter(self.nodes.values())).wait_until(self.is_whole)

    def kill(self) -> None:
        """Ends all servers."""
        for node in self.nodes.values():
            node.kill()

    async def is_whole(self) -> bool:
        """Whether all servers are there and in step."""
        raise NotImplementedError

    async def shrunk(self) -> str:
        """What a server that is away leaves behind, as the others see it."""
        raise NotImplementedError
