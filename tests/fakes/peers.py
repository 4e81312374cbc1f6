"""The other members in memory: a handover's messages go straight to the recipient's hint store.

`PeerNetwork` knows every hint store by its address; `InMemoryPeers` are the peers of one member. A test loses
messages: `cut` holds pairs of addresses that cannot reach each other, `lose` what the next messages lose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from services.consumer.core.handover.rules import BundleRequest, Completion, Offer
from services.consumer.core.slices import at_once
from services.consumer.handover.hints import HintStore
from shared.errors import (
    BatonError,
    BundleRejected,
    HandoverRefused,
    HandoverUnreadable,
    PeerUnavailable,
    Unavailable,
)

Loss = Literal["request", "answer"]
T = TypeVar("T")


@dataclass(slots=True)
class PeerNetwork:
    """`hint_stores`: by address. `lose`: what each of the next messages loses: request, answer, nothing;
    `sent` lists their names. Calls `after` with a message's name when it has taken effect, before its answer;
    `slow[name]`: the answer to the next such message waits for the event.
    """

    hint_stores: dict[str, HintStore] = field(default_factory=dict)
    cut: set[tuple[str, str]] = field(default_factory=set)
    lose: list[Loss | None] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    after: Callable[[str], None] = lambda what: None
    slow: dict[str, asyncio.Event] = field(default_factory=dict)


class InMemoryPeers:
    """A `Peers`."""

    def __init__(self, network: PeerNetwork, address: str) -> None:
        self._network = network
        self._address = address

    async def offer(self, address: str, offer: Offer, body: bytes) -> None:
        """See Peers."""

        def receive(hint_store: HintStore) -> asyncio.Future[None] | None:
            at_once(hint_store.receiving_copy(offer, body))
            return hint_store.arrivals.turn_of(offer)

        await self._call("offer", address, receive)

    async def complete(self, address: str, completion: Completion, body: bytes) -> None:
        """See Peers."""
        await self._call(
            "complete", address, lambda hint_store: at_once(hint_store.receiving_delta(completion, body))
        )

    async def fetch(self, address: str, request: BundleRequest) -> bytes:
        """See Peers."""
        return await self._call("fetch", address, lambda hint_store: at_once(hint_store.giving(request)))

    async def _call(self, what: str, address: str, act: Callable[[HintStore], T | asyncio.Future[T]]) -> T:
        network = self._network
        network.sent.append(what)
        loss = network.lose.pop(0) if network.lose else None
        await asyncio.sleep(0)
        hint_store = network.hint_stores.get(address)
        if hint_store is None or loss == "request" or (self._address, address) in network.cut:
            raise PeerUnavailable(f"{address} does not answer")
        try:
            answer = act(hint_store)
        except Unavailable as error:
            raise PeerUnavailable(error.detail) from error
        except BundleRejected as error:
            raise HandoverUnreadable(error.detail) from error
        except BatonError as error:
            raise HandoverRefused(error.detail) from error
        network.after(what)
        await asyncio.sleep(0)
        if isinstance(answer, asyncio.Future):
            answer = await answer
        if what in network.slow:
            await network.slow.pop(what).wait()
        if loss == "answer" or (address, self._address) in network.cut:
            raise PeerUnavailable(f"the answer of {address} was lost")
        return answer
