"""An owner that keeps the rules is never accused, at whichever of its commits an audit looks."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import accumulate

import msgspec
import pytest

from services.consumer.core.commits import stream as commits
from services.consumer.core.commits.commit import Commit
from services.consumer.core.sessions import fold, marker_search
from tests.effort import effort
from tests.logs import Store, fold_lazily, random_log
from tests.reference import Rec
from tests.unit.control.spark.audit.judged import World

FAULTS = ("missing", "overdue", "extra", "different", "duplicates")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit carries two sessions, and silence closes no more than one in a turn."""
    monkeypatch.setattr(commits, "MAX_PENDING_BYTES", 3_000)
    monkeypatch.setattr(fold, "CLOSED_AT_ONCE", 1)
    monkeypatch.setattr(marker_search, "CLOSED_AT_ONCE", 1)


class Audited(Store):
    """Kafka, with audits after a third of the commits. `is_cut`: of what retention has left of the log.
    `sums`: of all of them.
    """

    def __init__(self, log: list[Rec], *, is_cut: bool) -> None:
        super().__init__()
        self.log, self.is_cut = log, is_cut
        self.draw = random.Random(len(log))
        self.sums: Counter[str] = Counter()

    def commit(self, commit: Commit, rng: random.Random) -> list[int]:
        offsets = super().commit(commit, rng)
        if self.draw.random() < 0.33:
            self.sums += self.audit(self.draw.randrange(commit.head.position + 1) if self.is_cut else 0)
        return offsets

    def audit(self, start: int = 0) -> Counter[str]:
        """The numbers of what is stored now."""
        assert self.head is not None
        topic = [(msgspec.json.decode(value)["key"].encode(), value) for value in self.sessions]
        one = World(logs=[list(self.log)], topic=topic, start=start)
        one.position, one.silent_to = self.head.position, self.head.silent_to
        return one.audit()[0]


def in_order_of_append(log: list[Rec]) -> list[Rec]:
    """The log with append times that do not fall: the audit of a log that is cut relies on that."""
    times = accumulate((one.timestamp for one in log), max)
    return [replace(one, timestamp=a) for one, a in zip(log, times, strict=True)]


@pytest.mark.parametrize("is_cut", [False, True])
def test_at_no_commit_is_an_honest_owner_accused(is_cut: bool) -> None:
    """Nor one that has died or handed over amid a commit in parts: what it has not come to is under way."""
    sums = Counter[str]()
    for seed in range(effort(25)):
        rng = random.Random(seed)
        log = random_log(rng)
        store = Audited(in_order_of_append(log) if is_cut else log, is_cut=is_cut)
        fold_lazily(store.log, rng, store)

        assert {name: store.sums[name] for name in FAULTS if store.sums[name]} == {}, seed
        sums += store.sums

    assert 0 < sums["under_way"] < sums["judged"]
