"""One connection to ZooKeeper: with `link_session.py` all that uses aiozk, and only its raw calls.

A `Link` is one aiozk client with one connection and one ZooKeeper session; it is discarded after any failure.
aiozk's own reconnection is never used, because it repeats writes in whatever session exists by then. aiozk's
errors become `None`, `False`, NotFound or ZooKeeperUnavailable here. Used by
`shared/zookeeper/connection.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from aiozk import ACL, ZKClient, exc, protocol
from aiozk.states import States

from shared.errors import NotFound, ZooKeeperRefused, ZooKeeperUnavailable
from shared.zookeeper.access import Access
from shared.zookeeper.link_session import LinkSession
from shared.zookeeper.znodes import Check, Create, Delete, Operation, Set, Znode

CLOSE_TIMEOUT_S = 1.0

_REFUSALS = (exc.NoNode, exc.NodeExists, exc.BadVersion, exc.NotEmpty)
_FAILURES = (exc.ZKError, OSError, TimeoutError, asyncio.InvalidStateError)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a new connection needs to re-attach to a ZooKeeper session."""

    session_id: int
    password: bytes
    zxid: int | None
    """The last change seen: a server that is behind it rejects the connection, so no read goes back in
    time."""


class Link:
    """One aiozk client with one connection and one ZooKeeper session; `lost` is set once it has failed."""

    def __init__(
        self, server: str, timeout_s: float, old: Credentials | None, on_event: Callable[[str], None]
    ) -> None:
        self.server = server
        self.access: Access | None = None
        self.lost = asyncio.Event()
        self.client = ZKClient(server, session_timeout=timeout_s)
        # replaces the session that ZKClient has made, before it starts
        self.session = self.client.session = LinkSession(server, timeout_s, on_event)
        if old is not None:
            self.session.session_id, self.session.password = old.session_id, old.password
            self.session.last_zxid = old.zxid

    @property
    def session_id(self) -> int:
        """The ZooKeeper session of this link, once it is open."""
        return self.session.session_id or 0

    @property
    def timeout_s(self) -> float:
        """The time-out that the server granted."""
        return self.session.timeout

    @property
    def is_usable(self) -> bool:
        """Whether a request would be sent at once, in this ZooKeeper session."""
        return not self.lost.is_set() and bool(self.session.state == States.CONNECTED)

    @property
    def credentials(self) -> Credentials:
        """What another link needs to continue this ZooKeeper session."""
        session = self.session
        return Credentials(session_id=self.session_id, password=session.password, zxid=session.last_zxid)

    async def open(self, access: Access | None = None) -> None:
        """Connects and re-attaches to the old ZooKeeper session, or opens a new one if it has ended."""
        await self.client.start()
        # aiozk notices a lost connection only after a session time-out, but its read loop ends at once
        self.session.conn.read_loop_task.add_done_callback(self._on_lost)
        if access is not None:
            # before any other request: the server forgets its clients' users with their connections
            await self.authenticate(access)

    async def authenticate(self, access: Access) -> None:
        """Proves to the server who we are; what is created from now on has this access's ACL."""
        known = () if self.access is None else self.access.proofs
        for proof in access.proofs:
            if proof not in known:
                # one after the other: all answers have the same id
                request = protocol.AuthRequest(type=0, scheme="digest", auth=proof)
                await self._ask(self.client.send(request))
        self.access = access
        if access.is_locking:
            self.client.default_acl = _acl_of(access)

    def _on_lost(self, task: asyncio.Task[None]) -> None:
        _retrieve_exception(task)
        self.lost.set()
        self.session.conn.abort()  # requests in flight fail now instead of hanging

    async def end_session(self) -> None:
        """Ends the ZooKeeper session, so that its ephemerals vanish at once; bounded, may fail silently."""
        with contextlib.suppress(*_FAILURES):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.client.exists("/")  # aiozk cannot close while an answer is pending
                await self.client.close()

    async def abandon(self) -> None:
        """Drops the connection, fails requests in flight, and ends aiozk's tasks."""
        session = self.session
        self.lost.set()
        # aiozk would otherwise reconnect in the background
        session.closing = True
        conn = session.conn
        tasks = [session.repair_loop_task, session.heartbeat_task, conn and conn.read_loop_task]
        running = [task for task in tasks if task is not None and not task.done()]
        for task in running:
            task.cancel()
        if session.heartbeat_handle is not None:
            session.heartbeat_handle.cancel()
        if conn is not None:
            conn.closing = True
            conn.abort()
            conn.writer.transport.abort()
        if running:
            await asyncio.wait(running, timeout=CLOSE_TIMEOUT_S)
        for task in tasks:
            if task is not None and task.done():
                _retrieve_exception(task)
        if session.heartbeat_handle is not None:  # a heartbeat that ended just now has set a new one
            session.heartbeat_handle.cancel()

    async def ping(self) -> None:
        """Returns when the ensemble's leader answers.

        A follower that is cut off from its leader goes on answering reads, while the leader ends its clients'
        sessions. It passes a `sync` on, and the leader's answer comes behind every end of a session.
        """
        await self._ask(self.client.send(protocol.SyncRequest(path="/")))

    async def set_acl(self, path: str, *, is_locked: bool) -> bool:
        """Gives a znode the ACL of our access, or opens it to all; False if it has it already, or is gone."""
        acl = [protocol.acl.UNRESTRICTED_ACCESS]
        if is_locked:
            assert self.access is not None, "without a user there is nobody to lock it to"
            acl = _acl_of(self.access)
        try:
            if _texts(await self._ask(self.client.get_acl(path), path)) == _texts(acl):
                return False
            await self._ask(self.client.set_acl(path, acl, force=True), path)
        except exc.NoNode:
            return False
        return True

    async def get(self, path: str, watch: bool, awaits_creation: bool) -> Znode | None:
        """The znode or None; `watch` requests one event when it is created, changed or deleted."""
        while True:
            try:
                data, stat = await self._ask(self.client.get(path, watch=watch), path)
            except exc.NoNode:
                # only `exists` can watch a znode that does not exist
                # and if it exists by now, the loop reads it
                watches_missing = watch and awaits_creation
                if not watches_missing or not await self._exists(path):
                    return None
            else:
                return Znode(data=data or b"", version=stat.version, ephemeral_of=stat.ephemeral_owner)

    async def children(self, path: str, watch: bool) -> list[str]:
        """The sorted names of the children; none if the znode does not exist."""
        while True:
            try:
                return sorted(await self._ask(self.client.get_children(path, watch=watch), path))
            except exc.NoNode:
                if not watch or not await self._exists(path):
                    return []

    async def create(self, path: str, data: bytes, ephemeral: bool) -> bool:
        """Whether it was created (else it exists). Raises NotFound without a parent."""
        try:
            await self._ask(self.client.create(path, data=data, ephemeral=ephemeral), path)
        except exc.NodeExists:
            return False
        except exc.NoNode:
            raise NotFound(f"{path} has no parent in ZooKeeper") from None
        return True

    async def set(self, path: str, data: bytes, version: int) -> bool:
        """Whether it was written (else it has another version or does not exist)."""
        try:
            await self._ask(self.client.set(path, data, version), path)
        except (exc.BadVersion, exc.NoNode):
            return False
        return True

    async def delete(self, path: str, version: int) -> bool:
        """Whether it was deleted (else it has another version or children, or does not exist)."""
        try:
            # aiozk's own `delete` takes its version from a cache
            await self._ask(self.client.send(protocol.DeleteRequest(path=path, version=version)), path)
        except _REFUSALS:
            return False
        return True

    async def transact(self, operations: Sequence[Operation]) -> bool:
        """Whether all operations were done (else none was)."""
        transaction = self.client.begin_transaction()
        for operation in operations:
            match operation:
                case Check(path, version):
                    transaction.check_version(path, version)
                case Create(path, data, ephemeral):
                    transaction.create(path, data=data, ephemeral=ephemeral)
                case Set(path, data, version):
                    transaction.set_data(path, data, version=version)
                case Delete(path, version):
                    transaction.delete(path, version=version)
        try:
            # not `commit`, which hides why a transaction failed
            answer = await self._ask(self.client.send(transaction.request))
        except _REFUSALS:
            return False
        for operation, result in zip(operations, answer.responses, strict=False):
            if isinstance(result, exc.NoAuth):
                raise self._refused(operation.path)
        return not any(isinstance(result, exc.ResponseError) for result in answer.responses)

    async def _exists(self, path: str) -> bool:
        return bool(await self._ask(self.client.exists(path, watch=True), path))

    async def _ask(self, request: Awaitable[T], path: str = "/") -> T:
        """The answer. Raises the server's refusal, or ZooKeeperUnavailable if the outcome is unknown."""
        try:
            return await request
        except _REFUSALS:
            raise
        except exc.NoAuth:
            raise self._refused(path) from None
        except _FAILURES as error:
            raise ZooKeeperUnavailable(
                "ZooKeeper does not answer", cause=f"{self.server}: {error!r}"
            ) from error

    def _refused(self, path: str) -> ZooKeeperRefused:
        who = f"the user {self.access.user!r}" if self.access else "a client without a user"
        return ZooKeeperRefused(f"ZooKeeper refuses {who}", cause=f"no right to {path}")


def _acl_of(access: Access) -> list[ACL]:
    """All rights for the user, under each of its passwords, and none for others."""
    rights = dict.fromkeys(("read", "write", "create", "delete", "admin"), True)
    return [ACL.make(scheme="digest", id=name, **rights) for name in access.ids]


def _texts(acl: list[ACL]) -> list[str]:
    return sorted(map(str, acl))


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """Retrieves the task's exception, so that asyncio does not log it.

    aiozk's read loop fails on answers to requests that were cancelled.
    """
    if not task.cancelled():
        task.exception()
