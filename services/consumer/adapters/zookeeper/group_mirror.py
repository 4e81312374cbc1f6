"""What a member sees of its group, kept up to date with few reads: the view behind the coordinator.

Watches say which znode may have changed, and only those are read again; in addition, every few seconds,
the lists and a slice of the rest, in case a watch was lost. Of the streams' own nodes it reads those of
unowned streams only: nobody but the owner writes the node of a claimed one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import TypeVar

import msgspec

from services.consumer.adapters.zookeeper.expected_releases import ExpectedReleases
from shared.errors import ZooKeeperUnavailable
from shared.model.cluster import ClaimNode, MemberNode, StreamNode, View, parse_pins
from shared.model.names import Names
from shared.zookeeper.znodes import Znodes

RELIST_S = 5.0
"""How often the lists are read again without a watch having said so."""
SLICE = 64
"""How many of the single znodes are read again each time: bounded, however many streams there are."""
IN_FLIGHT = 256
"""Reads under way at once, so that a call's time-out never counts a long queue."""

T = TypeVar("T", int, str)
_member_of = msgspec.json.Decoder(MemberNode).decode
_claim_of = msgspec.json.Decoder(ClaimNode).decode
_stream_of = msgspec.json.Decoder(StreamNode).decode
logger = logging.getLogger(__name__)


class GroupMirror:
    """Members, claims, pins and unowned streams' nodes of one group, as `member` sees them.

    What this member itself wrote is noted at once (`note_…`) and wins over lists that were under way; a
    single znode that was read too early is read again, because its watch tells of the write.
    """

    def __init__(self, zookeeper: Znodes, names: Names, group: str, member: str, count: int) -> None:
        self.changed = asyncio.Event()
        self.is_displaced = False
        """Whether this member's node was last seen missing, or of another ZooKeeper session."""
        self._zookeeper = zookeeper
        self._members_path = names.members(group)
        self._claims_path = names.claims(group)
        self._streams_path = names.streams(group)
        self._pins_path = names.pins(group)
        self._member = member
        self._count = count
        self._reading = asyncio.Lock()
        self._session_id = 0
        self._writes = 0
        self._written: dict[int, int] = {}
        """Stream → number of this member's last own write about it."""
        self._forget()

    def _forget(self) -> None:
        self._members: dict[str, MemberNode] = {}
        self._claims: dict[int, ClaimNode] = {}
        self._nodes: dict[int, StreamNode] = {}
        self._pins: dict[int, str] = {}
        self._versions: dict[int, int] = {}
        """Of those nodes, but for such as this member wrote itself."""
        self.expected = ExpectedReleases(self._zookeeper.now_s)
        self._is_whole = False
        self._existing: set[int] = set()
        """Streams that have a node: somebody has owned them."""
        self._claimed: set[int] = set()
        """Streams with a claim of anybody, those of this member's former ZooKeeper sessions included."""
        self._old_members: set[str] = set()
        self._old_claims: set[int] = set()
        self._old_nodes: set[int] = set()
        self._old_parts = {"lists", "pins"}
        self._relist_at_s = 0.0
        self._turn = 0

    def note_member(self, node: MemberNode) -> None:
        """This member's node now has these data."""
        self._members[self._member] = node
        self.is_displaced = False

    def note_claim(self, stream: int, claim: ClaimNode) -> None:
        """This member now holds the claim."""
        self._note(stream)
        self.expected.settle(stream)
        self._claims[stream] = claim
        self._claimed.add(stream)
        self._existing.add(stream)
        self._nodes.pop(stream, None)

    def note_release(self, stream: int, node: StreamNode) -> None:
        """This member has given the claim up and left the node like this."""
        self._note(stream)
        self._claims.pop(stream, None)
        self._claimed.discard(stream)
        self._nodes[stream] = node
        self._versions.pop(stream, None)
        self._old_nodes.add(stream)

    def doubt(self, stream: int) -> None:
        """A write to a claim that this member holds is unknown: a watch shall tell when it comes late."""
        self._old_claims.add(stream)

    def _note(self, stream: int) -> None:
        self._writes += 1
        self._written[stream] = self._writes

    def unowned(self, stream: int) -> tuple[StreamNode, int] | None:
        """The node of a stream that was last seen without a claim, and the node's version."""
        node, version = self._nodes.get(stream), self._versions.get(stream)
        if node is None or version is None or stream in self._claimed:
            return None
        return node, version

    async def view(self) -> View:
        """The group as it stands. Raises ZooKeeperUnavailable."""
        async with self._reading:
            session = self._zookeeper.session
            if session is None:
                raise ZooKeeperUnavailable("not connected to ZooKeeper")
            if session.id != self._session_id:
                self._forget()
                self._session_id = session.id
            if self._is_whole and self.expected.take_news():
                return self._as_known()  # before anything is read: `changed` stays set
            self.changed.clear()
            now_s = self._zookeeper.now_s()
            if now_s >= self._relist_at_s:
                self._relist_at_s = now_s + RELIST_S
                self._doubt_some()
            await self._refresh()
            self._is_whole = True
            return self._as_known()

    def _as_known(self) -> View:
        return View(
            count=self._count,
            members=dict(self._members),
            claims=dict(self._claims),
            nodes={n: node for n, node in self._nodes.items() if n not in self._claims},
            pins=self._pins,
        )

    def _doubt_some(self) -> None:
        self._old_parts |= {"lists", "pins"}
        self._old_members |= self._members.keys()
        streams = sorted(self._claims.keys() | self._nodes.keys())
        if streams:
            self._turn %= len(streams)
            for stream in islice(streams, self._turn, self._turn + SLICE):
                (self._old_claims if stream in self._claims else self._old_nodes).add(stream)
            self._turn += SLICE

    async def _refresh(self) -> None:
        for part, read in (("lists", self._read_lists), ("pins", self._read_pins)):
            # once: while many claim, lists are never quite up to date
            if part in self._old_parts:
                self._old_parts.discard(part)
                try:
                    await read()
                except BaseException:
                    self._old_parts.add(part)
                    raise
        await self._read_again(self._old_members, self._read_member)
        await self._read_again(self._old_claims, self._read_claim)
        self._old_nodes |= self._existing - self._nodes.keys()
        self._old_nodes -= self._claims.keys()
        await self._read_again(self._old_nodes, self._read_node)

    async def _read_again(self, old: set[T], read: Callable[[T], Awaitable[None]]) -> None:
        """Reads what is in `old`, and takes out of it what could be read (a watch may put it in again)."""
        while old:
            some = sorted(old)[:IN_FLIGHT]
            unread = set(some)
            old -= unread
            try:
                results = await asyncio.gather(
                    *(_read_one(x, read, unread) for x in some), return_exceptions=True
                )
            finally:
                old |= unread
            for failure in results:
                if failure is not None:
                    raise failure

    async def _read_lists(self) -> None:
        within, writes = self._session_id, self._writes
        members, claims, existing = await asyncio.gather(
            self._zookeeper.children(self._members_path, watch=self._on_lists, within=within),
            self._zookeeper.children(self._claims_path, watch=self._on_lists, within=within),
            self._read_existing(),
        )
        for gone in self._members.keys() - set(members):
            self._members.pop(gone)
        self._old_members |= set(members) - self._members.keys()
        self.is_displaced |= self._member not in members
        own = {n for n, number in self._written.items() if number > writes}
        claimed = self._streams(claims)
        for stream in self._claimed - claimed - own:
            self._unclaim(stream)
        self._old_claims |= claimed - self._claimed - own
        self._existing |= existing

    async def _read_existing(self) -> set[int]:
        if len(self._existing) == self._count:
            return self._existing
        return self._streams(await self._zookeeper.children(self._streams_path, within=self._session_id))

    def _unclaim(self, stream: int) -> None:
        self._claims.pop(stream, None)
        self._claimed.discard(stream)
        self._old_claims.discard(stream)
        self._existing.add(stream)
        self._old_nodes.add(stream)

    async def _read_member(self, name: str) -> None:
        path = f"{self._members_path}/{name}"
        znode = await self._zookeeper.get(path, watch=self._on_member, within=self._session_id)
        if znode is None:
            self._members.pop(name, None)
        else:
            self._members[name] = _member_of(znode.data)
        if name == self._member:
            self.is_displaced |= znode is None or znode.ephemeral_of != self._session_id

    async def _read_claim(self, stream: int) -> None:
        path = f"{self._claims_path}/{stream}"
        znode = await self._zookeeper.get(path, watch=self._on_claim, within=self._session_id)
        if znode is None:
            self._unclaim(stream)
            return
        claim = _claim_of(znode.data)
        self._claimed.add(stream)
        if claim.member == self._member and znode.ephemeral_of != self._session_id:
            self._claims.pop(stream, None)
            self._existing.add(stream)
        else:
            self._claims[stream] = claim
            self._nodes.pop(stream, None)
            self.expected.settle(stream)

    async def _read_node(self, stream: int) -> None:
        path = f"{self._streams_path}/{stream}"
        znode = await self._zookeeper.get(path, watch=self._on_node, within=self._session_id)
        self.expected.settle(stream)
        if znode is None:
            self._nodes.pop(stream, None)
            self._versions.pop(stream, None)
            self._existing.discard(stream)
        else:
            self._nodes[stream] = _stream_of(znode.data)
            self._versions[stream] = znode.version

    async def _read_pins(self) -> None:
        """Pins that cannot be read are none: everybody reads the same, so everybody plans the same."""
        znode = await self._zookeeper.get(self._pins_path, watch=self._on_pins, within=self._session_id)
        try:
            self._pins = parse_pins(znode.data) if znode is not None and znode.data else {}
        except msgspec.DecodeError as error:
            logger.warning("the pins cannot be read", extra={"path": self._pins_path, "why": str(error)})
            self._pins = {}

    def _streams(self, names: Iterable[str]) -> set[int]:
        return {int(name) for name in names if name.isdecimal() and int(name) < self._count}

    def _on_lists(self, path: str) -> None:
        self._old_parts.add("lists")
        self.changed.set()

    def _on_pins(self, path: str) -> None:
        self._old_parts.add("pins")
        self.changed.set()

    def _on_member(self, path: str) -> None:
        self._old_members.add(path.rpartition("/")[2])
        self.changed.set()

    def _on_claim(self, path: str) -> None:
        stream = int(path.rpartition("/")[2])
        expected = self.expected.come(stream)
        if expected:
            self._unclaim(stream)
            self._nodes[stream], self._versions[stream] = expected
        self._old_claims.add(stream)
        self.changed.set()

    def _on_node(self, path: str) -> None:
        self._old_nodes.add(int(path.rpartition("/")[2]))
        self.changed.set()


async def _read_one(what: T, read: Callable[[T], Awaitable[None]], unread: set[T]) -> None:
    await read(what)
    unread.discard(what)
