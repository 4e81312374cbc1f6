"""Asks every producer for its counts, over HTTP.

Workers of one producer are registered one by one, but share a port: any of them answers for all, so each
address is asked once. A private port is asked if there is one. One of control's files that import httpx.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import httpx
import msgspec

from services.control.adapters.http_members import answer_of
from services.control.core.producer_rates import ProducerCounts
from shared.model.cluster import ProducerNode


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    """A producer's answer to `GET /status`."""

    producers: list[ProducerCounts]


class HttpProducers:
    """A `ProducerSource` that asks through `http`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def read(self, producers: Mapping[str, ProducerNode]) -> dict[str, ProducerCounts]:
        """What each of the producers that answer has counted, by id."""
        at = {name: node.private_address or node.address for name, node in producers.items()}
        addresses = sorted(set(at.values()))
        answers = await asyncio.gather(
            *(answer_of(self._http, f"{address}/status", _Status) for address in addresses)
        )
        return {
            counts.id: counts
            for address, answer in zip(addresses, answers, strict=True)
            for counts in (answer.producers if answer else ())
            # another producer may have taken over the address
            if at.get(counts.id) == address
        }
