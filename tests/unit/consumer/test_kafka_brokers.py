"""Clients that start together ask for the brokers once, and what they know is never wrong for long."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError

from services.consumer.adapters.kafka import brokers as kafka_brokers
from services.consumer.adapters.kafka.brokers import KnownBrokers
from tests.fakes.virtual_time import virtual_time

ASKING_S = 7.0
"""Longer than what was learnt is lent: a slow broker must not be asked by one client after the other."""


class Client(AIOKafkaClient):  # type: ignore[misc]
    """A client whose bootstrap takes its time, and fails while the cluster is gone."""

    asked = 0
    is_gone = False

    def __init__(self) -> None:
        super().__init__(bootstrap_servers="nowhere:1")

    async def bootstrap(self) -> None:
        type(self).asked += 1
        await asyncio.sleep(ASKING_S)
        if self.is_gone:
            raise KafkaConnectionError("gone")
        self.cluster._brokers = {1: f"the broker as seen at the {self.asked}. time"}


@pytest.fixture
def cluster() -> type[Client]:
    """A class of clients of the test's own."""
    return type("ClientOfACluster", (Client,), {})


async def start(known: KnownBrokers, client: Client) -> str:
    """Starts the client on what is known; what it knows then."""
    known.lend(client)
    await client.bootstrap()
    await client.close()
    (broker,) = client.cluster._brokers.values()
    return str(broker)


@virtual_time
async def test_of_those_that_start_together_one_asks(cluster: type[Client]) -> None:
    """Also when asking takes longer than what was learnt is lent."""
    known = KnownBrokers()

    found = await asyncio.gather(*[start(known, cluster()) for _ in range(20)])

    assert (cluster.asked, len(set(found))) == (1, 1)


@virtual_time
async def test_what_was_learnt_is_lent_for_a_while_only(cluster: type[Client]) -> None:
    """Brokers come and go."""
    known = KnownBrokers()
    await start(known, cluster())
    await asyncio.sleep(kafka_brokers.MAX_AGE_S - 1)
    assert "1. time" in await start(known, cluster())

    await asyncio.sleep(2)

    assert "2. time" in await start(known, cluster())


@virtual_time
async def test_a_client_that_cannot_ask_leaves_it_to_the_next(cluster: type[Client]) -> None:
    """A failure is the client's own, and nothing is learnt from it."""
    known = KnownBrokers()
    cluster.is_gone = True
    with pytest.raises(KafkaConnectionError):
        await start(known, cluster())
    cluster.is_gone = False

    assert "2. time" in await start(known, cluster())


@virtual_time
async def test_a_client_that_gives_up_asking_leaves_it_to_the_next(cluster: type[Client]) -> None:
    """Starts are bounded in time by those who start."""
    known = KnownBrokers()
    first, second = (asyncio.ensure_future(start(known, cluster())) for _ in range(2))
    await asyncio.sleep(1)

    first.cancel()

    assert "2. time" in await second
