"""Asks every producer for its counts, over HTTP.

Workers of one producer are registered one by one, but share a port: any of them answers for all, so each
address is asked once. A private port is asked if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.control.adapters.processes.kept_connections import Ask
from services.control.adapters.processes.statuses import answer_of
from services.control.core.report.producer_rates import ProducerCounts
from shared.model.cluster import ProducerNode
from shared.together import together


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    """A producer's answer to `GET /status`."""

    producers: list[ProducerCounts]


class HttpProducers:
    """A `ProducerSource` that asks by `ask`."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def read(self, producers: Mapping[str, ProducerNode]) -> dict[str, ProducerCounts]:
        """What each of the producers that answer has counted, by id."""
        at = {name: node.private_address or node.address for name, node in producers.items()}
        addresses = sorted(set(at.values()))
        answers = await together(answer_of(self._ask, f"{address}/status", _Status) for address in addresses)
        return {
            counts.id: counts
            for address, answer in zip(addresses, answers, strict=True)
            for counts in (answer.producers if answer else ())
            # another producer may have taken over the address
            if at.get(counts.id) == address
        }
