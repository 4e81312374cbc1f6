"""What becomes of sent records, and how those who wait hear of it: by plain calls, or by one future.

Records have no futures, and batches know only those who wait for them. A record costs 1 µs in this way;
aiokafka's `send`, with a future each, costs 7 to 14.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

FLUSH_TIMEOUT_S = 2.0
"""How long a stopping process may wait for what is still queued."""
LossKind = Literal["late", "no-topic", "rejected", "closed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Why records were not acknowledged.

    `late`: their time was over. `no-topic`: there is no such topic. `rejected`: the broker refused them.
    `closed`: the sender was closed.
    """

    kind: LossKind
    reason: str
    """For strangers; `cause` may name addresses."""
    cause: str = ""
    is_unknown: bool
    """Whether they may be stored all the same. If not, they are not stored, and never will be."""
    code: int = 0
    """Kafka's error code, if it was `rejected`."""
    created_s: float
    """When the batch's first record arrived, on the loop's clock."""


class Waiter(Protocol):
    """Waits for the outcome of its records, which comes once for each share that `Sender.add` counted.

    A share is its records in one batch; `indexes` is the part of what it gave to `add` that belongs to them.
    Called from the loop: it must be quick and must not raise.
    """

    def stored(self, indexes: Sequence[Any], first_offset: int) -> None:
        """The records are stored one after the other from this offset on; -1: Kafka does not say where."""
        ...

    def lost(self, indexes: Sequence[Any], loss: Loss) -> None:
        """The records were not acknowledged."""
        ...


class Outcome:
    """Pass it to `Sender.add` and its result to `expect`; it calls once the outcome of all records is known.

    `unstored` are the indexes of records that were not acknowledged, and `loss` says why for the last of
    them. `offsets` has, for each acknowledged share, its indexes and the offset of the first record (-1: not
    known); the other records follow it without a gap.
    """

    __slots__ = ("_left", "_on_known", "loss", "offsets", "unstored")

    def __init__(self, on_known: Callable[[Outcome], None]) -> None:
        self._on_known = on_known
        self.loss: Loss | None = None
        self.unstored: list[int] = []
        self.offsets: list[tuple[Sequence[int], int]] = []
        self._left = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._left} shares left, {len(self.unstored)} records unstored>"

    def expect(self, shares: int) -> None:
        """Adds shares to wait for."""
        self._left += shares

    def stored(self, indexes: Sequence[int], first_offset: int) -> None:
        """See `Waiter`."""
        self.offsets.append((indexes, first_offset))
        self._settle()

    def lost(self, indexes: Sequence[int], loss: Loss) -> None:
        """See `Waiter`."""
        self.unstored += indexes
        self.loss = loss
        self._settle()

    def _settle(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._on_known(self)


class Delivery(Outcome):
    """An outcome to await: `done` once it is known."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done = self.done
        # who waits may have been cancelled meanwhile
        super().__init__(lambda known: None if done.done() else done.set_result(None))
