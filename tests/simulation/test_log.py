"""The in-memory log keeps its contract also when the simulation's wire is between it and its client."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import itertools
import random

import pytest

from shared.errors import KafkaUnavailable
from tests.fakes.log import InMemoryLog
from tests.fakes.operator import InMemoryOperator
from tests.fakes.virtual_time import VirtualLoop, in_virtual_time
from tests.log_contract import SETTINGS, LogContract
from tests.lost_log_contract import LostLogContract
from tests.simulation.log import SimulatedStreamLog
from tests.simulation.wire import Weather, Wire


class Contracts(LogContract, LostLogContract):
    """Both of them."""


PROMISES = [name for name in dir(Contracts) if name.startswith("test_")]


@pytest.mark.parametrize("slow", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("promise", PROMISES)
def test_the_log_keeps_its_contract_over_a_wire(
    promise: str, slow: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests and answers take their time, up to a fifth of a client's patience."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        clock = itertools.count(1_000)
        rng, broker = random.Random(promise), InMemoryLog(SETTINGS, now_ms=lambda: next(clock))
        broker.others["default"] = broker
        wire = Wire(loop, rng, Weather(slow=slow), KafkaUnavailable)
        log = SimulatedStreamLog(broker, "a1", wire, rng, contextvars.Context(), lambda *commit: None)

        async def append(stream: int, key: bytes | None, value: bytes) -> int:
            return broker.append(stream, key, value)

        fixtures = {
            "stream_log": log,
            "append": append,
            "operator": InMemoryOperator(broker),
            "monkeypatch": monkeypatch,
        }
        check = getattr(Contracts(), promise)
        await check(**{name: fixtures[name] for name in inspect.signature(check).parameters})
        assert broker.wrong == []

    in_virtual_time(test)
