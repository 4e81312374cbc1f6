"""Asks every producer for its counts, over HTTP.

A private port is asked if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.control.adapters.processes.kept_connections import Ask
from services.control.adapters.processes.statuses import answer_of
from services.control.core.report.producer_rates import ProducerCounts
from shared.model.cluster import ProducerNode
from shared.together import together


class HttpProducers:
    """A `ProducerSource` that asks by `ask`."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def read(self, producers: Mapping[str, ProducerNode]) -> dict[str, ProducerCounts]:
        """What each of the producers that answer has counted, by id."""
        at = {name: node.private_address or node.address for name, node in producers.items()}
        addresses = sorted(set(at.values()))
        answers = await together(
            answer_of(self._ask, f"{address}/status", ProducerCounts) for address in addresses
        )
        return {
            counts.id: counts
            for address, counts in zip(addresses, answers, strict=True)
            # another producer may have taken over the address
            if counts is not None and at.get(counts.id) == address
        }
