"""Keeps operations in ZooKeeper: a znode each, written when it begins and when it ends.

Every control reads them, so an operation survives a restart, and two controls show the same ones. An
operation that has ended is not read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from services.control.core.operations.operation import Operation, OperationNode
from shared.errors import ZooKeeperUnavailable
from shared.model.names import Names
from shared.together import together
from shared.zookeeper.unreadable import UnreadableZnodes
from shared.zookeeper.znodes import Znode, Znodes

READS_AT_ONCE = 32
_node_of = msgspec.json.Decoder(OperationNode).decode


class ZooKeeperOperations:
    """An `OperationStore` on a connected `Znodes`."""

    def __init__(self, znodes: Znodes, names: Names) -> None:
        self._znodes = znodes
        self._names = names
        self._ended: dict[str, OperationNode] = {}
        self._unreadable = UnreadableZnodes()
        self._slots = asyncio.Semaphore(READS_AT_ONCE)

    def __repr__(self) -> str:
        return f"<ZooKeeperOperations under {self._names.operations}: {len(self._ended)} have ended>"

    async def read(self) -> Mapping[str, OperationNode]:
        """All stored operations that can be read, by id. Raises ZooKeeperUnavailable."""
        listed = await self._znodes.children(self._names.operations)
        self._ended = {name: node for name, node in self._ended.items() if name in set(listed)}
        nodes = await together(self._read(name) for name in listed)
        found = {name: node for name, node in zip(listed, nodes, strict=True) if node is not None}
        self._ended = {name: node for name, node in found.items() if node.operation.has_ended}
        return found

    async def create(self, node: OperationNode) -> bool:
        """Stores an operation that begins; False if there is one of this id. Raises ZooKeeperUnavailable."""
        path, data = self._names.operation(node.operation.id), node.encode()
        await self._znodes.make_path(self._names.operations)
        try:
            return await self._znodes.create(path, data)
        except ZooKeeperUnavailable:
            # the write may have happened although its answer was lost
            found = await self._znodes.get(path)
            if found is None:
                raise
            return found.data == data

    async def end(self, operation: Operation) -> Operation:
        """Stores the operation's end; returns it as it has ended: another control may have been first.

        Raises ZooKeeperUnavailable.
        """
        path = self._names.operation(operation.id)
        while True:
            znode = await self._znodes.get(path)
            stored = self._decoded(path, znode)
            if znode is None:
                return operation  # forgotten, or ZooKeeper was reset: there is nothing to keep up to date
            if stored is not None and stored.operation.has_ended:
                return stored.operation
            request = stored.request if stored is not None else ""
            ended = OperationNode(operation=operation, request=request)
            if await self._znodes.set(path, ended.encode(), znode.version):
                return operation

    async def forget(self, operation_id: str) -> None:
        """Removes the operation, if it is there. Raises ZooKeeperUnavailable."""
        self._ended.pop(operation_id, None)
        await self._znodes.delete(self._names.operation(operation_id))

    async def _read(self, name: str) -> OperationNode | None:
        if name in self._ended:
            return self._ended[name]
        path = self._names.operation(name)
        async with self._slots:
            return self._decoded(path, await self._znodes.get(path))

    def _decoded(self, path: str, znode: Znode | None) -> OperationNode | None:
        if znode is None:
            self._unreadable.forget(path)
            return None
        return self._unreadable.decode(path, znode.data, _node_of)
