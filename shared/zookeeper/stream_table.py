"""The stream table in its znode: the first producer creates it, then everybody only reads it.

Topics are created before the table, so that a table implies its topics. Without a table (ZooKeeper was reset)
the existing fragments topics determine the number of streams. `shared/model/routing.py` defines the table
itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from shared.errors import InvalidInput, Unavailable
from shared.kafka.admin.topics import ensure_topics, fragments_topics, list_topics
from shared.kafka.connect.access import Kafka
from shared.model.names import Names
from shared.model.routing import StreamTable, initial_table, parse_table
from shared.zookeeper.unreadable import FAULTS, UnreadableZnodes
from shared.zookeeper.znodes import Znodes

REREAD_S = 5.0
"""The table is also read this often without an event of its watch, as a safety net."""
SETTLE_S = 3.0
"""Topics without a table count as work in progress of another process for so long after their last change."""


class WrongNumberOfStreams(InvalidInput):
    """The configured number of streams differs from the existing one."""


class TableUnreadable(Unavailable):
    """The stream table is unreadable: wait until an operator has repaired it."""


async def read_table(znodes: Znodes, names: Names) -> StreamTable | None:
    """The stored table, or None if there is none yet.

    Raises ZooKeeperUnavailable, TableUnreadable.
    """
    found = await znodes.get(names.table)
    if found is None:
        return None
    try:
        return parse_table(found.data)
    except FAULTS as error:
        raise TableUnreadable(f"the stream table at {names.table} is unreadable: {error}") from None


async def wait_for_table(znodes: Znodes, names: Names) -> StreamTable:
    """The stored table, as soon as there is a readable one; limit the wait with `asyncio.timeout`.

    Raises ZooKeeperUnavailable.
    """
    changed = asyncio.Event()
    unreadable = UnreadableZnodes()
    while True:
        changed.clear()
        found = await znodes.get(names.table, watch=lambda _: changed.set())
        table = unreadable.decode(names.table, found.data, parse_table) if found is not None else None
        if table is not None:
            return table
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REREAD_S):
                await changed.wait()


async def ensure_table(
    znodes: Znodes,
    names: Names,
    *,
    kafka: Kafka,
    streams: int | None,
    default_streams: int,
    retention_ms: int,
    replication: int,
) -> StreamTable:
    """The stored table, created if there is none; ensures that its topics exist.

    `streams` None accepts any existing number. Raises WrongNumberOfStreams when `streams` differs from the
    stored number, or from that of existing fragments topics; TableUnreadable, KafkaUnavailable,
    ZooKeeperUnavailable.
    """
    table = await read_table(znodes, names)
    if table is None:
        # topics before the table: a process that finds a table relies on its topics
        table = initial_table(await _first_number(znodes, names, kafka, streams, default_streams))
        await ensure_topics(kafka, fragments_topics(names, table.count, retention_ms), replication)
        await znodes.make_path(names.root)
        await znodes.create(names.table, table.encode())
        # another process may have been first: the stored table counts
        table = await read_table(znodes, names) or table
    else:
        await ensure_topics(kafka, fragments_topics(names, table.count, retention_ms), replication)
    if streams is not None and table.count != streams:
        raise WrongNumberOfStreams(
            f"{streams} streams are asked for (BATON_STREAMS), but the stream table has {table.count}; "
            "the number of streams is fixed once they are created"
        )
    return table


def count_of(names: Names, topics: Iterable[str]) -> int:
    """The number of streams that the existing fragments topics imply; 0 without any.

    >>> count_of(Names(), ["fragments.0000", "fragments.0002", "sessions"])
    3
    """
    return max((n + 1 for topic in topics if (n := names.stream_of(topic)) is not None), default=0)


async def _first_number(
    znodes: Znodes, names: Names, kafka: Kafka, streams: int | None, default_streams: int
) -> int:
    loop = asyncio.get_running_loop()
    # another process may be creating the topics right now, and a part of them must not count as all
    before, deadline = 0, 0.0
    while True:
        found = count_of(names, await list_topics(kafka))
        # no topics yet, or exactly as many as configured: nothing to wait for
        if found in (0, streams):
            return streams or found or default_streams
        stored = await read_table(znodes, names)
        if stored is not None:
            return stored.count
        if found != before:
            before, deadline = found, loop.time() + SETTLE_S
        # no topic has appeared for a while: these are all
        elif loop.time() > deadline:
            if streams is None:
                return found
            raise WrongNumberOfStreams(
                f"{streams} streams are asked for (BATON_STREAMS), but the topics {names.fragments(0)} … "
                f"{names.fragments(found - 1)} exist, which fix {found} streams"
            )
        await asyncio.sleep(0.1)
