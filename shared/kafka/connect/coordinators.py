"""Which broker coordinates a Kafka group, or a transactional id."""

from __future__ import annotations

import asyncio
from typing import Final

from shared.backoff import Backoff
from shared.kafka.connect.cluster import Cluster
from shared.kafka.connect.refusals import refusal
from shared.kafka.wire.transactions import FindCoordinators

MOVED_COORDINATOR: Final = frozenset({15, 16})
"""Error codes: there is no coordinator at present, or it is another broker."""
LOADING: Final = MOVED_COORDINATOR | {14}
"""Error codes that pass: the coordinator also may still read what it knows."""


async def find_coordinator(cluster: Cluster, key: str, *, is_group: bool) -> int:
    """The node id of a coordinator; waits until there is one, so the caller bounds the time.

    Raises KafkaUnavailable.
    """
    backoff = Backoff(first_s=0.02, cap_s=0.5)
    while True:
        answer = await cluster.ask_any(FindCoordinators([key], is_group=is_group))
        _, node, _, _, code, *_ = answer.coordinators[0]
        if not code and cluster.knows(node):
            return int(node)
        if code and code not in LOADING:
            raise refusal(f"no coordinator of {key}", code)
        await asyncio.sleep(backoff.next_s())
        await cluster.refresh()
