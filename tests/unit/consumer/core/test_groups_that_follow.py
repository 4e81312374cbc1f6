"""A group that follows another one: every fragment stands in exactly one current session."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from services.consumer.core.sessions.assembly import Assembler
from services.consumer.core.sessions.covered import CoveredKeys
from services.consumer.core.sessions.fold import Fold
from services.consumer.core.sessions.seam import Seam
from shared.model.start import Cut, GroupStart, cuts_of, reaching_cuts
from tests import following
from tests.effort import effort
from tests.following import LENGTH, chain_difference
from tests.logs import is_found

SEEDS = effort(500)
Patch = pytest.MonkeyPatch


def test_every_fragment_stands_in_exactly_one_current_session() -> None:
    """Of three groups, each follows the one before with other settings, from a start that its head allows.
    Owners crash and move at any commit, the first one included; the followed groups go on meanwhile. In half
    of the chains the log is made anew on the way."""
    assert [text for seed in range(SEEDS) if (text := chain_difference(seed))] == []


@pytest.mark.soak
def test_twenty_thousand_chains_do() -> None:
    """The same for many more."""
    assert [text for seed in range(SEEDS, 20_000) if (text := chain_difference(seed))] == []


def cover_nothing(patch: Patch) -> None:
    """A following group does not know what stands in sessions of others."""
    patch.setattr(Seam, "add", lambda self, cut, records: None)


def cover_by_the_nearest_alone(patch: Patch) -> None:
    """It asks only the group that it follows itself."""
    patch.setattr(following, "reaching_cuts", lambda chain, stream: reaching_cuts(chain, stream)[:1])


def cover_what_is_not_current(patch: Patch) -> None:
    """Sessions that the group makes again cover their keys, too."""
    add = Seam.add

    def wrong(self: Seam, cut: Cut, records: Iterable[bytes]) -> None:
        add(self, cut._replace(below=None), records)

    patch.setattr(Seam, "add", wrong)


def skip_in_replays_alone(patch: Patch) -> None:
    """What is covered is skipped below the stored position, and folded above it."""
    add = Fold._add

    def wrong(self: Fold, *given: Any) -> Any:
        covers, self.covered.covers = self.covered.covers, lambda key, offset: False  # type: ignore[method-assign]
        try:
            return add(self, *given)
        finally:
            self.covered.covers = covers  # type: ignore[method-assign]

    patch.setattr(Fold, "_add", wrong)


def forget_w_of_what_is_covered(patch: Patch) -> None:
    """A fragment that is skipped does not move W."""
    add = Fold._add

    def wrong(self: Fold, *given: Any) -> Any:
        w, skipped = self.w, self.skipped
        found = add(self, *given)
        if self.skipped > skipped:
            self.w = w
        return found

    patch.setattr(Fold, "_add", wrong)


def commit_without_what_is_covered(patch: Patch) -> None:
    """The first commit does not store what is covered."""
    take_over = CoveredKeys.take_over
    patch.setattr(
        CoveredKeys,
        "take_over",
        lambda self, changed, unparked: take_over(self, () if unparked == () else changed, unparked),
    )


def start_above_what_is_open(patch: Patch) -> None:
    """A group starts where the followed one has read to, whatever is open there."""
    patch.setattr(following, "latest_start", lambda head, before: head.position if head else before)


def forget_that_parked_sessions_are_open(patch: Patch) -> None:
    """The oldest session of a head is the oldest of those that a replay rebuilds."""
    patch.setattr(
        Assembler,
        "find_oldest",
        lambda self, pinned: pinned.first_offset if pinned is not None else -1,
    )


def cover_by_a_log_that_is_gone(patch: Patch) -> None:
    """Sessions of the log before cover offsets of the one that was made anew."""
    patch.setattr(following, "reaching_cuts", cuts_of)


def cut_a_log_that_is_gone(patch: Patch) -> None:
    """Starts on the log that was made anew cut the sessions of the one before."""

    def wrong(chain: Sequence[GroupStart], stream: int) -> list[Cut]:
        found = cuts_of(chain, stream)
        lowest = itertools.accumulate((LENGTH if cut.below is None else cut.below for cut in found), min)
        return [cut._replace(below=below) for cut, below in zip(found, lowest, strict=True)]

    patch.setattr(following, "cuts_of", wrong)


def take_a_log_made_anew_for_the_same(patch: Patch) -> None:
    """Null counts as the beginning of the log, below which nothing of the followed group is current."""
    patch.setattr(
        following,
        "cuts_of",
        lambda chain, stream: [cut._replace(below=cut.below or 0) for cut in cuts_of(chain, stream)],
    )


def forget_which_log_a_session_is_of(patch: Patch) -> None:
    """Offsets alone decide what is current."""
    holds = Cut.holds
    patch.setattr(Cut, "holds", lambda self, first_offset, log=0: holds(self, first_offset, self.log))


FAULTS: list[Callable[[Patch], None]] = [
    cover_nothing,
    cover_by_the_nearest_alone,
    cover_what_is_not_current,
    skip_in_replays_alone,
    forget_w_of_what_is_covered,
    commit_without_what_is_covered,
    start_above_what_is_open,
    forget_that_parked_sessions_are_open,
    cover_by_a_log_that_is_gone,
    cut_a_log_that_is_gone,
    take_a_log_made_anew_for_the_same,
    forget_which_log_a_session_is_of,
]


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """The property above can fail: each broken rule shows in some random chain."""
    plant(monkeypatch)

    assert is_found(chain_difference)
