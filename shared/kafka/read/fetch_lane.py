"""One connection of a fetcher to a broker, and the loop that fetches over it.

`poll` is the long poll of everything, in a fetch session. `first` serves what cannot wait for its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, Protocol

from shared.errors import KafkaUnavailable
from shared.kafka.connect.channel import Channel
from shared.kafka.connect.cluster import Cluster
from shared.kafka.connect.refusals import refusal
from shared.kafka.read.fetch_session import FetchSession
from shared.kafka.read.reading import FETCH_BYTES, Reading
from shared.kafka.wire.fetch import FetchedPartition, FetchRequest, FetchResponse, Place, Wish

logger = logging.getLogger(__name__)

WAIT_MS = {"first": 20, "poll": 1000}
"""How long the broker may wait for the first record. A late partition waits for at most one `first`, and
joins the long poll when that ends; in a session an idle poll costs next to nothing."""
ANSWER_BYTES = 8 * 1024 * 1024
ANSWER_TIMEOUT_S = 10.0
"""Beyond the time that the broker may wait."""
SMALL_ANSWER = 64 * 1024
PACE_S = 0.01
"""After an answer below `SMALL_ANSWER` bytes more may gather: this bounds the polls per second."""
FAULT_PAUSE_S = 1.0
SESSION_ENDED = frozenset({70, 71, 106})
"""Error codes: the broker has forgotten the session, or knows another state; the next fetch begins anew."""
Asked = Mapping[Place, tuple[Reading, Wish]]


class Budget(NamedTuple):
    """What may be fetched now.

    `share`: a reading that holds more is left out; −1: all are. `bytes`: of one partition and of one answer,
    at most, except that a broker gives one batch whole.
    """

    share: int
    bytes: int


class Readings(Protocol):
    """What a lane needs of its fetcher."""

    is_committed: bool

    def budget(self) -> Budget: ...
    def of_broker(self, node: int) -> Iterable[Reading]: ...
    def take_over(self, partitions: Iterable[FetchedPartition], asked: Asked) -> None: ...
    def interrupted(self, node: int) -> None: ...


class FetchLane:
    """Fetches over the connection `name` to the broker `node`, until it is closed."""

    def __init__(
        self,
        readings: Readings,
        cluster: Cluster,
        node: int,
        name: Literal["first", "poll"],
        pace_s: float = PACE_S,
    ) -> None:
        self._readings = readings
        self._cluster = cluster
        self._node, self._name = node, name
        self._pace_s = pace_s
        self._session = FetchSession(is_committed=readings.is_committed)
        self._connection = 0
        self._awake = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"{name} of broker {node}")

    def __repr__(self) -> str:
        return f"<FetchLane {self._name} to broker {self._node}>"

    def wake(self) -> None:
        """There may be something to fetch."""
        self._awake.set()

    def accept_next_connection(self) -> None:
        """If its connection is broken, the next one is no news: the readings compare their records anyway."""
        if not self._cluster.knows(self._node) or not self._channel.is_connected:
            self._connection = 0

    async def close(self) -> None:
        """Ends the loop."""
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            try:
                await self._step()
            except Exception:  # a fault of ours: without this loop nothing more would be read
                logger.exception("fetching failed")
                self._session.reset()
                await asyncio.sleep(FAULT_PAUSE_S)

    async def _step(self) -> None:
        """Fetches once, or waits until there is something to fetch."""
        self._awake.clear()
        budget = self._readings.budget()
        asked = self._wanted(budget)
        if not asked:
            await self._awake.wait()
        elif await self._fetch(asked, budget) < SMALL_ANSWER:
            await asyncio.sleep(self._pace_s)

    def _wanted(self, budget: Budget) -> Asked:
        wanted: dict[Place, tuple[Reading, Wish]] = {}
        for reading in self._readings.of_broker(self._node):
            if not reading.has_room or not (reading.is_urgent or self._name == "poll"):
                continue
            if reading.size > budget.share:
                reading.is_left_out = True
                continue
            place, wish = reading.ask
            if wish.max_bytes > budget.bytes:
                wish = wish._replace(max_bytes=budget.bytes)
            wanted[place] = reading, wish
        return wanted

    async def _fetch(self, asked: Asked, budget: Budget) -> int:
        """One request and its answer; returns how many bytes of records there were."""
        wishes = {place: wish for place, (_, wish) in asked.items()}
        limits = WAIT_MS[self._name], max(FETCH_BYTES, min(ANSWER_BYTES, budget.bytes))
        if self._name == "poll":
            for reading, _ in asked.values():
                reading.is_urgent = False
            request = self._session.request(wishes, *limits)
        else:
            request = FetchRequest(wishes, *limits, is_committed=self._readings.is_committed)
        try:
            response = await self._request(request)
            if response is not None and response.error not in (0, *SESSION_ENDED):
                raise refusal("the fetch is refused", response.error)
        except KafkaUnavailable as error:
            logger.warning("fetch failed", extra={"broker": self._node, "why": error.detail})
            response = None
        if response is None or response.error:
            self._session.reset()
        if response is None:
            self._readings.interrupted(self._node)
            return 0
        if self._name == "poll" and not response.error:
            self._session.answered(response.session_id)
        self._readings.take_over(response.partitions, asked)
        return sum(len(fetched.records) for fetched in response.partitions)

    @property
    def _channel(self) -> Channel:
        return self._cluster.channel(self._node, self._name)

    async def _request(self, request: FetchRequest) -> FetchResponse | None:
        """The answer; None if it came over another connection than the last one. Raises KafkaUnavailable."""
        channel = self._channel
        response: FetchResponse = await channel.request(
            request, WAIT_MS[self._name] / 1000 + ANSWER_TIMEOUT_S
        )
        before, self._connection = self._connection, channel.connections
        return response if before in (0, self._connection) else None
