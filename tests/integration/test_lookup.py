"""Look-ups on real servers: control asks the real owner, reads the real log, and follows a handover."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from services.control.adapters.processes.client import http_client
from services.control.adapters.processes.kept_connections import KeptConnections
from services.control.adapters.processes.signed_requests import HttpOwners, SignedRequests
from services.control.adapters.processes.statuses import HttpMembers, HttpProducers
from services.control.adapters.topics.offsets import KafkaOffsets
from services.control.adapters.topics.records import KafkaRecords
from services.control.adapters.znodes.cluster import ZooKeeperCluster
from services.control.core.found import KeyRow
from services.control.live.look_ups import LookUp
from services.control.live.view.cluster_view import ClusterView
from services.control.tables.lake import Lake
from services.control.tables.reader import TableReader
from services.control.tables.sessions import LakeSessions
from shared.zookeeper.connection import ZooKeeper
from shared.zookeeper.secret import ensure_secrets
from tests.integration.consumers import SETTINGS, Group, group
from tests.integration.test_consumer_moves import emit
from tests.tables import write_sessions
from tests.waiting import until

KEY = "k"
"""The key of what `emit` appends."""


class Finder:
    """Control's look-ups over the group's servers."""

    def __init__(self, view: ClusterView, look_up: LookUp) -> None:
        self._view = view
        self.look_up = look_up

    async def found_at(self, member: str) -> KeyRow:
        """The key, once this member answers for it."""
        found: KeyRow | None = None

        async def is_there() -> bool:
            nonlocal found
            await self._view.step()
            found = await self.look_up.key("default", KEY, limit=10)
            return found.owner == member and found.answered

        await until(is_there, lambda: f"{found}")
        assert found is not None
        return found


@contextlib.asynccontextmanager
async def finder(found: Group, zookeeper: str, lake: Path) -> AsyncIterator[Finder]:
    """Control connected to the group's servers, and to a lake."""
    where = found.fleet.where
    async with contextlib.AsyncExitStack() as stack:
        znodes = await stack.enter_async_context(ZooKeeper(zookeeper, 6.0))
        offsets = await stack.enter_async_context(KafkaOffsets(where.kafka, where.names))
        records = await stack.enter_async_context(KafkaRecords(where.kafka, where.names))
        http = await stack.enter_async_context(http_client())
        asked = await stack.enter_async_context(KeptConnections())
        cluster, members = ZooKeeperCluster(znodes, where.names), HttpMembers(asked.get)
        producers = HttpProducers(asked.get)
        view = ClusterView(
            cluster, offsets, members, producers, where.names, refresh_s=0.1, status_window_s=20.0
        )
        signed = SignedRequests(http, lambda: ensure_secrets(znodes, where.names, ""), where.names.namespace)
        tables = TableReader(Lake(str(lake), ""))
        stack.callback(tables.close)
        yield Finder(view, LookUp(view, HttpOwners(signed), records, LakeSessions(tables), list))


async def test_an_open_session_is_found_at_its_owner_and_after_a_handover_at_the_new_one(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """It is the same session there. Once it has ended it is no longer open, and the lake has it."""
    lake = tmp_path / "lake"
    async with (
        group(kafka, zookeeper, namespace, tmp_path, streams=1) as found,
        finder(found, zookeeper, lake) as control,
    ):
        a = await found.join("a")
        await found.until(lambda: a.running == [0])
        for number in range(3):
            await emit(found, 0, b'{"key":"k","data":%d}' % number)
        await found.until(lambda: a.worker(0).position == 3)
        at_a = await control.found_at("a")
        b = await found.join("b")
        a.stop.set()
        await found.until(lambda: b.running == [0])
        at_b = await control.found_at("b")
        held = await control.look_up.open("default", 0)

        await emit(found, 0, b"poison")
        await emit(found, 0, b'{"key":"k","end":true}')
        await found.until(lambda: b.worker(0).position == 5 and b.worker(0).counts.sessions == 1)
        ended = await control.found_at("b")
        log = await control.look_up.fragments(0, 2)
        older = await control.look_up.fragments(0, 5, log.next)
        keys = await control.look_up.keys("default", 0)
        await found.end()
        (session,) = await found.fleet.where.delivered()
        row = {"data": [bytes(raw).decode() for raw in session.data], "day": datetime.date(2023, 11, 15)}
        write_sessions(lake, [msgspec.structs.asdict(session) | row])
        by_id = await control.look_up.session(session.id)

    assert at_a.open is not None
    assert (at_a.open.first_offset, at_a.open.fragments, at_a.finished.sessions) == (0, 3, None)
    assert at_a.open.silent_after == at_a.open.last_time + SETTINGS.gap_ms + SETTINGS.lateness_ms
    assert at_a.data == [f'{{"key":"k","data":{number}}}' for number in range(3)]
    assert (at_b.open, at_b.data) == (at_a.open, at_a.data)
    assert held.oldest == [at_a.open]
    assert (ended.answered, ended.open) == (True, None)
    assert [(row.offset, row.kind) for row in log.fragments] == [(4, "fragment"), (3, "unreadable")]
    assert [row.offset for row in older.fragments] == [2, 1, 0]
    assert [(one.key, one.fragments) for one in keys.recent or ()] == [(KEY, 4)]
    assert (by_id.key, by_id.fragments, by_id.first_offset) == (KEY, 4, 0)
    assert by_id.data == [bytes(raw).decode() for raw in session.data]
