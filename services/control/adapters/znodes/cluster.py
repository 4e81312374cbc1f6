"""Everything in ZooKeeper, kept current by watches: a znode that has not changed is not read again.

A refresh of a quiet cluster of a thousand streams costs one request. It shows that ZooKeeper answers, and
all watches that fired earlier arrive before its answer. As a safety net for lost watches, everything is
read again every RESYNC_S.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from services.control.core.report.observed import Cluster, Group
from shared.model.cluster import (
    UNREADABLE_CLAIM,
    UNREADABLE_PAUSE,
    ClaimNode,
    MemberNode,
    PauseNode,
    ProducerNode,
    StreamNode,
    View,
    parse_pins,
    stream_numbers,
)
from shared.model.group import parse_group_settings
from shared.model.names import Names
from shared.model.routing import StreamTable, parse_table
from shared.model.start import parse_aliases, parse_start
from shared.together import both, together
from shared.zookeeper.unreadable import UnreadableZnodes
from shared.zookeeper.znodes import Znodes

RESYNC_S = 30.0
READS_AT_ONCE = 32
_pause_of = msgspec.json.Decoder(PauseNode).decode

T = TypeVar("T")
K = TypeVar("K", int, str)


class _StoredTable(NamedTuple):
    """The stream table, and its JSON as it is stored."""

    parsed: StreamTable
    text: str


def _stored_table(raw: bytes) -> _StoredTable:
    return _StoredTable(parse_table(raw), raw.decode())


class ZooKeeperCluster:
    """A `ClusterSource` on a connected `Znodes`."""

    def __init__(self, znodes: Znodes, names: Names) -> None:
        self._tree = _WatchedTree(znodes, names.root)
        self._names = names
        self._table: _StoredTable | None = None
        self._last = Cluster()
        self._seen_changes = -1

    def __repr__(self) -> str:
        return f"<ZooKeeperCluster under {self._names.root}, {self._tree!r}>"

    @property
    def unreadable_znodes(self) -> int:
        """How many znodes could not be decoded when they were last read."""
        return len(self._tree.unreadable)

    async def read(self) -> Cluster:
        """The cluster as it is now; the same object as before if nothing changed.

        Raises ZooKeeperUnavailable. An unreadable znode is logged and left out, except that a claim stays
        somebody's, and that of the stream table the last good one stays.
        """
        await self._tree.sync()
        changes = self._tree.changes
        if changes != self._seen_changes:
            self._last = await self._read()
            self._seen_changes = changes
        return self._last

    async def _read(self) -> Cluster:
        names = self._names
        self._table = await self._tree.value(names.table, _stored_table, unreadable=self._table)
        count = self._table.parsed.count if self._table else 0
        producers = await self._named(names.producers, names.producer, ProducerNode)
        groups = {}
        for group in await self._tree.children(names.groups):
            groups[group] = Group(
                settings=await self._tree.value(names.group(group), parse_group_settings),
                view=await self._read_view(group, count),
                start=await self._tree.value(names.start(group), parse_start),
            )
        text = self._table.text if self._table else ""
        aliases = await self._tree.value(names.aliases, parse_aliases)
        return Cluster(
            count=count, stream_table=text, groups=groups, producers=producers, aliases=aliases or {}
        )

    async def _read_view(self, group: str, count: int) -> View:
        names = self._names
        members, (claims, nodes) = await both(
            self._named(names.members(group), lambda m: names.member(group, m), MemberNode),
            both(self._claims(group, count), self._nodes(group, count)),
        )
        pins = await self._tree.value(names.pins(group), parse_pins)
        pause = await self._tree.value(names.pause(group), _pause_of, unreadable=UNREADABLE_PAUSE)
        return View(count=count, members=members, claims=claims, nodes=nodes, pins=pins or {}, pause=pause)

    async def _claims(self, group: str, count: int) -> dict[int, ClaimNode]:
        streams = stream_numbers(await self._tree.children(self._names.claims(group)), count)
        return await self._values(
            streams, lambda n: self._names.claim(group, n), ClaimNode, unreadable=UNREADABLE_CLAIM
        )

    async def _nodes(self, group: str, count: int) -> dict[int, StreamNode]:
        streams = stream_numbers(await self._tree.children(self._names.streams(group)), count)
        return await self._values(streams, lambda n: self._names.stream(group, n), StreamNode)

    async def _named(self, parent: str, path_of: Callable[[str], str], kind: type[T]) -> dict[str, T]:
        return await self._values(await self._tree.children(parent), path_of, kind)

    async def _values(
        self, keys: Iterable[K], path_of: Callable[[K], str], kind: type[T], unreadable: T | None = None
    ) -> dict[K, T]:
        decode = msgspec.json.Decoder(kind).decode
        ordered = sorted(keys)
        reads = (self._tree.value(path_of(key), decode, unreadable, is_listed=True) for key in ordered)
        values = await together(reads)
        return {key: value for key, value in zip(ordered, values, strict=True) if value is not None}


class _WatchedTree:
    """Parsed znodes and lists of children, each dropped when its watch fires."""

    def __init__(self, znodes: Znodes, root: str) -> None:
        self._znodes = znodes
        self._root = root
        self._known: dict[str, Any] = {}
        self._children: dict[str, list[str]] = {}
        self._reading: set[str] = set()
        self._slots = asyncio.Semaphore(READS_AT_ONCE)
        self._synced_s = znodes.now_s()
        self.changes = 0
        self.unreadable = UnreadableZnodes()

    def __repr__(self) -> str:
        return f"{len(self._known)} znodes known"

    async def sync(self) -> None:
        """Returns once every watch that has fired was delivered. Raises ZooKeeperUnavailable.

        Every RESYNC_S it also drops everything that is cached.
        """
        await self._znodes.get(self._root)
        if self._znodes.now_s() - self._synced_s > RESYNC_S:
            self._known.clear()
            self._children.clear()
            self._reading.clear()
            self.changes += 1
            self._synced_s = self._znodes.now_s()

    async def value(
        self,
        path: str,
        decode: Callable[[bytes], T],
        unreadable: T | None = None,
        *,
        is_listed: bool = False,
    ) -> T | None:
        """The znode's decoded data; None if the znode is missing, `unreadable` if it is that.

        `is_listed`: found among its parent's children, whose watch also reports that it was created. If it is
        missing by now, it may never come back, so it is neither watched nor kept.
        """
        if path not in self._known:
            read = partial(self._decoded, path, decode, unreadable, is_listed)
            value = await self._fetch(path, self._known, read)
            if value is None and is_listed:
                self._known.pop(path, None)
            return value
        known: T | None = self._known[path]
        return known

    async def children(self, path: str) -> list[str]:
        """The names of the znode's children, sorted."""
        if path not in self._children:
            return await self._fetch(
                path, self._children, lambda: self._znodes.children(path, watch=self._forget)
            )
        return self._children[path]

    async def _decoded(
        self, path: str, decode: Callable[[bytes], T], unreadable: T | None, is_listed: bool
    ) -> T | None:
        znode = await self._znodes.get(path, watch=self._forget, awaits_creation=not is_listed)
        if znode is None:
            self.unreadable.forget(path)
            return None
        decoded = self.unreadable.decode(path, znode.data, decode)
        return decoded if decoded is not None else unreadable

    async def _fetch(self, path: str, cache: dict[str, Any], read: Callable[[], Awaitable[T]]) -> T:
        async with self._slots:
            self._reading.add(path)
            fetched = await read()
            if path in self._reading:  # otherwise its watch fired while we waited, and the answer is old
                self._reading.discard(path)
                cache[path] = fetched
            return fetched

    def _forget(self, path: str) -> None:
        self.changes += 1
        self._reading.discard(path)
        # a watch names the path, not whether its data or its children have changed
        self._known.pop(path, None)
        self._children.pop(path, None)
        self.unreadable.forget(path)
