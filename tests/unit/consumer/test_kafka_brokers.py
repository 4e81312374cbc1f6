"""Clients that start together bootstrap once, and a list of brokers is never reused for long."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError

from services.consumer.adapters.kafka import brokers as kafka_brokers
from services.consumer.adapters.kafka.brokers import KnownBrokers
from tests.fakes.virtual_time import virtual_time

BOOTSTRAP_S = 7.0
"""Longer than a list of brokers is reused: even then, clients must not bootstrap one after the other."""


class Client(AIOKafkaClient):  # type: ignore[misc]
    """A client whose bootstrap is slow, and fails while the cluster is gone."""

    bootstraps = 0
    is_gone = False

    def __init__(self) -> None:
        super().__init__(bootstrap_servers="nowhere:1")

    async def bootstrap(self) -> None:
        type(self).bootstraps += 1
        await asyncio.sleep(BOOTSTRAP_S)
        if self.is_gone:
            raise KafkaConnectionError("gone")
        self.cluster._brokers = {1: f"the broker as seen at the {self.bootstraps}. time"}


@pytest.fixture
def cluster() -> type[Client]:
    """A class of clients that only this test uses, as it counts bootstraps."""
    return type("ClientOfACluster", (Client,), {})


async def start(known: KnownBrokers, client: Client) -> str:
    """Starts the client with the known brokers; returns the broker that it ends up with."""
    known.lend(client)
    await client.bootstrap()
    await client.close()
    (broker,) = client.cluster._brokers.values()
    return str(broker)


@virtual_time
async def test_only_one_of_the_clients_that_start_together_bootstraps(cluster: type[Client]) -> None:
    """Even if the bootstrap takes longer than its result may be reused."""
    known = KnownBrokers()

    found = await asyncio.gather(*[start(known, cluster()) for _ in range(20)])

    assert (cluster.bootstraps, len(set(found))) == (1, 1)


@virtual_time
async def test_known_brokers_are_reused_only_for_a_while(cluster: type[Client]) -> None:
    """Because brokers come and go."""
    known = KnownBrokers()
    await start(known, cluster())
    await asyncio.sleep(kafka_brokers.MAX_AGE_S - 1)
    assert "1. time" in await start(known, cluster())

    await asyncio.sleep(2)

    assert "2. time" in await start(known, cluster())


@virtual_time
async def test_after_a_failed_bootstrap_the_next_client_tries(cluster: type[Client]) -> None:
    """Only the client that failed sees the error, and nothing is remembered."""
    known = KnownBrokers()
    cluster.is_gone = True
    with pytest.raises(KafkaConnectionError):
        await start(known, cluster())
    cluster.is_gone = False

    assert "2. time" in await start(known, cluster())


@virtual_time
async def test_after_a_cancelled_bootstrap_the_next_client_tries(cluster: type[Client]) -> None:
    """Callers bound the time of their own starts."""
    known = KnownBrokers()
    first, second = (asyncio.ensure_future(start(known, cluster())) for _ in range(2))
    await asyncio.sleep(1)

    first.cancel()

    assert "2. time" in await second
