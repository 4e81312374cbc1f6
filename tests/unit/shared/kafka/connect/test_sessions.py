"""A connection is replaced before its session with the broker ends, and no request notices."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

from shared.errors import KafkaDenied, KafkaUnavailable
from shared.kafka.connect.channel import Channel
from tests.fakes.virtual_time import virtual_time

SESSION_S = 10.0


class Session:
    """A connection to a broker that answers in order, and closes at a request after the session's end."""

    def __init__(self, broker: Broker) -> None:
        self.lifetime_s = SESSION_S
        self.is_closed = False
        self._broker = broker
        self._ends_s = broker.now_s + SESSION_S
        self._turn = asyncio.Lock()

    def connected(self) -> bool:
        return not self.is_closed

    def close(self) -> None:
        self.is_closed = True

    async def leave(self) -> None:
        self.close()

    async def send(self, request: tuple[str, float]) -> str:
        name, takes_s = request
        if self.is_closed or self._broker.now_s >= self._ends_s:
            self.is_closed = True
            raise KafkaConnectionError("the session has ended")
        async with self._turn:
            self._broker.handled.append(name)
            await asyncio.sleep(takes_s)
        if self.is_closed:
            raise KafkaConnectionError("closed")
        return name


class Broker:
    """`handled`: the requests in the order of their turns; while `is_denying`, it lets nobody in."""

    def __init__(self) -> None:
        self.handled: list[str] = []
        self.sessions: list[Session] = []
        self.is_denying = False

    @property
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def connect(self, host: str, port: int) -> Any:
        await asyncio.sleep(0.02)
        if self.is_denying:
            raise KafkaDenied("Kafka refuses the token")
        self.sessions.append(Session(self))
        return self.sessions[-1]

    @property
    def open(self) -> list[Session]:
        return [session for session in self.sessions if not session.is_closed]


@pytest.fixture
def broker() -> Broker:
    return Broker()


@virtual_time
async def test_requests_without_end_outlive_every_session(broker: Broker) -> None:
    """Each is answered, on one connection at a time, which is used for most of its session."""
    channel = Channel("fake", 1, broker.connect)

    for n in range(500):
        assert await channel.request((f"{n}", 0.001), 5.0) == f"{n}"
        await asyncio.sleep(0.2)

    assert len(broker.open) == 1
    assert 10 <= channel.connections <= 13
    await channel.close()
    assert broker.open == []


@virtual_time
async def test_an_idle_connection_is_replaced_at_the_next_request(broker: Broker) -> None:
    """However long ago its session ended."""
    channel = Channel("fake", 1, broker.connect)

    for pause_s in (0.0, 9.9, 1000.0):
        await asyncio.sleep(pause_s)
        assert await channel.request(("one", 0.001), 5.0) == "one"

    assert channel.connections == 3


@virtual_time
async def test_what_is_under_way_is_answered_on_the_old_connection_and_nothing_overtakes_it(
    broker: Broker,
) -> None:
    """A broker would refuse the second batch of an idempotent sender before the first."""
    channel = Channel("fake", 1, broker.connect)
    await channel.request(("first", 0.001), 5.0)
    await asyncio.sleep(8.0)

    slow = [asyncio.create_task(channel.request((f"slow {n}", 1.0), 5.0)) for n in range(3)]
    await asyncio.sleep(1.7)  # two answers are to come
    later = [asyncio.create_task(channel.request((f"later {n}", 0.001), 5.0)) for n in range(3)]
    answers = await asyncio.gather(*slow, *later)

    assert broker.handled == ["first", *answers]
    assert channel.connections == 2
    assert len(broker.open) == 1


@virtual_time
async def test_a_long_poll_may_end_after_its_session(broker: Broker) -> None:
    """A broker closes at the next request, not in the middle of an answer."""
    channel = Channel("fake", 1, broker.connect)
    await channel.request(("first", 0.001), 5.0)
    await asyncio.sleep(8.0)

    assert await channel.request(("long poll", 5.0), 10.0) == "long poll"
    assert await channel.request(("next", 0.001), 5.0) == "next"
    assert channel.connections == 2


@virtual_time
async def test_without_a_newer_token_the_old_session_is_used_to_its_end(broker: Broker) -> None:
    """Then the reason is reported, and the channel recovers when there is a token again."""
    channel = Channel("fake", 1, broker.connect)
    await channel.request(("first", 0.001), 5.0)
    broker.is_denying = True

    answered_until_s = await last_answer_s(channel, lambda: broker.now_s < 30)
    assert 9.5 < answered_until_s < 10.1
    with pytest.raises(KafkaDenied, match="refuses the token"):
        await channel.request(("denied", 0.001), 5.0)

    broker.is_denying = False
    assert await channel.request(("again", 0.001), 5.0) == "again"


async def last_answer_s(channel: Channel, goes_on: Callable[[], bool]) -> float:
    """When the last request was answered, of one every 0.1 s."""
    loop = asyncio.get_running_loop()
    last_s = loop.time()
    for n in itertools.takewhile(lambda _: goes_on(), itertools.count()):
        try:
            await channel.request((f"{n}", 0.001), 5.0)
            last_s = loop.time()
        except KafkaUnavailable:
            pass
        await asyncio.sleep(0.1)
    return last_s


@virtual_time
async def test_closing_ends_a_replacement_under_way(broker: Broker) -> None:
    """Whoever waits for the answers on the old connection fails, and nothing stays open."""
    channel = Channel("fake", 1, broker.connect)
    await channel.request(("first", 0.001), 5.0)
    await asyncio.sleep(8.0)
    slow = asyncio.create_task(channel.request(("slow", 60.0), 100.0))
    await asyncio.sleep(1.7)
    waiting = asyncio.create_task(channel.request(("waiting", 0.001), 5.0))
    await asyncio.sleep(0.1)

    await channel.close()
    await asyncio.sleep(100)

    assert all(isinstance(task.exception(), KafkaUnavailable) for task in (slow, waiting))
    assert broker.open == []
