"""The real consumer under every fault that the simulation knows: a thousand seeds, each promise checked."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import combinations_with_replacement
from pathlib import Path

import pytest

from tests.simulation import simulation
from tests.simulation.__main__ import in_pairs, parse_seeds, print_trace, run_spread
from tests.simulation.replays import digests
from tests.simulation.simulation import Tally, run
from tests.simulation.world import World

SEEDS = 1000
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tally() -> Tally:
    """The sum of all runs."""
    return run_spread([(range(SEEDS), ())], jobs=2)


@pytest.mark.timeout(600)
def test_every_seed_keeps_every_promise(tally: Tally) -> None:
    """Each fragment in one session as in the log, one owner per epoch, heads that only advance, rest."""
    for seed, _ in tally.wrong[:1]:
        print_trace(run(seed, listen=True))

    assert tally.runs == SEEDS
    assert [f"seed {seed}: {wrong[0]}" for seed, wrong in tally.wrong] == []


@pytest.mark.parametrize(
    ("what", "at_least"),
    [
        ("is killed", 250),
        ("is frozen", 150),
        ("is cut", 500),
        ("has bad weather", 500),
        ("zookeeper session ends", 500),
        ("clock jumps", 150),
        ("is asked to leave", 150),
        ("is fenced", 25),
        ("event handover", 250),
        ("zookeeper is reset", 25),
        ("is garbled", 250),
        ("zookeeper is down", 150),
        ("commits a part", 1000),
        ("grow too large", 25),
        ("is damaged", 150),
        ("log loses its end", 150),
        ("log is started over", 50),
        ("is asked to drain", 150),
        ("log is lost", 100),
        ("claims", 50),
        ("turns bad", 150),
        ("is rightly suspected", 100),
        ("is wrongly suspected", 40),
    ],
)
def test_faults_hit_while_work_goes_on(tally: Tally, what: str, at_least: int) -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    assert tally.happened[what] >= at_least
    assert tally.happened["commits"] > 10 * SEEDS


def test_a_seed_replays_exactly() -> None:
    """A seed gives the same run to the last message, whatever the hash seed of the process."""
    found = digests("tests.simulation", "1")

    assert len(set(found)) == 6
    assert digests("tests.simulation", "2") == found


def test_a_planned_move_is_warm() -> None:
    """While nothing goes wrong, every stream that is handed over goes on from memory."""
    warm = Counter(
        next(detail for detail in details if detail.startswith("warm"))
        for seed in range(10)
        for _, _, what, details in run(seed, ["move"]).trace.entries
        if what == "event handover"
    )

    assert warm["warm True"] > 20
    assert warm.keys() == {"warm True"}


def test_a_run_can_be_read() -> None:
    """The trace shows in virtual time who did what: faults, claims, commits."""
    lines = list(run(1, listen=True).trace.lines())

    assert "begins" in lines[0]
    for what in ("starts", "create claims/", "fences", "commits", "says"):
        assert [line for line in lines if what in line] != []
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)


def test_a_run_that_never_ends_is_reported_by_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is one that fails by itself. The runs behind them are made all the same: one that cannot even be
    ended must not end them all.
    """

    async def spin(world: World, *course: object) -> list[str]:
        while world.seed == 7:  # noqa: ASYNC110 - what spins does not wait for anything
            await asyncio.sleep(0)
        assert world.seed != 8 or not course, "of the schedule"
        return []

    monkeypatch.setattr(simulation, "_course", spin)
    monkeypatch.setattr(simulation, "_end", spin)

    found = simulation.run_all(range(6, 10))

    assert found.runs == 4
    assert [(seed, wrong[0][:15]) for seed, wrong in found.wrong] == [
        (7, "NoEnd('no end i"),
        (8, "AssertionError("),
    ]


def test_pairs_are_each_kind_alone_and_with_each_other_on_seeds_of_its_own() -> None:
    """What `--in-pairs` runs: no combination is left out, and no seed is run twice."""
    parts = in_pairs(100, 103)

    kinds = {kind for _, (kind, *others) in parts if not others}
    assert kinds >= {"crash", "grow_streams", "regrow_in_parts"}
    assert Counter(frozenset(together) for _, together in parts) == Counter(
        frozenset({a, b}) for a, b in combinations_with_replacement(sorted(kinds), 2)
    )
    assert [seed for seeds, _ in parts for seed in seeds] == list(range(100, 100 + 3 * len(parts)))


@pytest.mark.parametrize(("text", "seeds"), [("7", (0, 7)), ("7..9", (7, 9)), ("1000000", (0, 1_000_000))])
def test_seeds_are_a_number_or_a_range(text: str, seeds: tuple[int, int]) -> None:
    """`SEEDS=n` are the first n, `SEEDS=a..b` a half-open range."""
    assert parse_seeds(text) == seeds
