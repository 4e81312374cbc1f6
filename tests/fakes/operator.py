"""What befalls the topics of a broker in memory, under the contract of `tests/lost_log_contract.py`."""

from __future__ import annotations

from tests.fakes.log import InMemoryLog


class InMemoryOperator:
    """The contract's `Operator` of a broker in memory."""

    def __init__(self, broker: InMemoryLog) -> None:
        self._broker = broker

    async def lose_end(self, stream: int, keep: int) -> None:
        self._broker.lose_end(stream, keep)

    async def retain_from(self, stream: int, first: int) -> None:
        self._broker.retain_from(stream, first)

    async def start_over(self, stream: int) -> None:
        self._broker.start_over(stream)

    async def lose_checkpoints(self, stream: int) -> None:
        self._broker.lose_checkpoints(stream)
