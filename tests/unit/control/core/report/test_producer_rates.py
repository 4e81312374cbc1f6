"""What producers accept and refuse per second follows from their own counts and clocks."""

from __future__ import annotations

import random

import msgspec
import pytest

from services.control.adapters.processes.statuses import HttpProducers
from services.control.core.report.producer_rates import (
    WINDOW_MS,
    ProducerCounts,
    ProducerRate,
    ProducerRates,
)
from shared.model.cluster import ProducerNode


def counts(at_ms: int, accepted: int, **refused: int) -> dict[str, ProducerCounts]:
    """The counts of producer `p`."""
    return {"p": ProducerCounts(id="p", at=at_ms, accepted=accepted, refused=refused)}


@pytest.mark.parametrize("seed", range(10))
def test_a_steady_producer_has_a_steady_rate(seed: int) -> None:
    """However often control asks, and however old its answer is: their own time counts."""
    chance, rates, at_ms = random.Random(seed), ProducerRates(), 0
    found: list[ProducerRate] = []
    for _ in range(200):
        at_ms += chance.randint(0, 200) * 10
        aged_ms = at_ms - chance.randint(0, 100) * 10
        if aged_ms >= 0:
            found.append(rates.observe(counts(aged_ms, aged_ms // 10, late=aged_ms // 100))["p"])

    assert found[0] == ProducerRate()
    assert {round(rate.accepted_per_s or 0, 6) for rate in found[10:]} == {100}


def test_a_rate_is_one_of_the_last_seconds() -> None:
    """What has stopped is no longer a refusal a window later."""
    rates = ProducerRates()
    for second in range(60):
        (rate,) = rates.observe(counts(second * 1000, 0, bad=min(second, 20) * 5)).values()
        if second == 20:
            assert rate.refused_per_s == {"bad": 5.0}

    assert rate == ProducerRate(accepted_per_s=0.0, refused_per_s={})
    assert WINDOW_MS < 40_000


def test_a_producer_that_restarts_or_is_silent_has_no_rate_at_first() -> None:
    """Neither a negative rate nor one over the silence."""
    rates = ProducerRates()
    rates.observe(counts(0, 100))
    known = rates.observe(counts(1000, 200))

    restarted = rates.observe(counts(2000, 5))
    silent = rates.observe({})
    back = rates.observe(counts(4000, 50))

    assert known["p"].accepted_per_s == 100
    assert (restarted["p"], silent, back["p"]) == (ProducerRate(), {}, ProducerRate())


def test_refusals_of_fragments_and_requests_are_one_list_of_reasons() -> None:
    """By name; fragments that Kafka did not acknowledge are among them."""
    reported = ProducerCounts(id="p", at=0, unstored=1, rejected={"time": 2}, refused={"overloaded": 3})

    assert reported.refusals() == {"unstored": 1, "time": 2, "overloaded": 3}


async def test_a_producer_is_asked_at_its_private_port_and_only_for_itself() -> None:
    """A silent producer has no counts, nor has one whose address another one has taken over."""
    asked: list[str] = []

    async def ask(url: str) -> bytes | None:
        asked.append(url)
        if "gone" in url:
            return None
        return msgspec.json.encode({"id": "p", "at": 5, "new": 1})

    nodes = {
        "p": ProducerNode(address="http://public:1", private_address="http://private:2"),
        "x": ProducerNode(address="http://other:1"),
        "y": ProducerNode(address="http://gone:1"),
    }
    source = HttpProducers(ask)

    found = await source.read(nodes)

    assert sorted(found) == ["p"]
    assert sorted(asked) == ["http://gone:1/status", "http://other:1/status", "http://private:2/status"]
