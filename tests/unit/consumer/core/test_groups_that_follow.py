"""A group that follows another one: every fragment stands in exactly one current session."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.consumer.core.commits.stream import Stream
from services.consumer.core.handover.received import Copy, complete
from services.consumer.core.sessions.assembly import Assembler
from services.consumer.core.sessions.covered import CoveredKeys
from services.consumer.core.sessions.fold import Fold
from services.consumer.core.sessions.seam import Seam
from shared.model import start
from shared.model.head import Head
from tests import following
from tests.effort import effort
from tests.following import fold_difference, seam_difference
from tests.logs import is_found

SEEDS = effort(2_000)
Patch = pytest.MonkeyPatch


def test_every_fragment_stands_in_exactly_one_current_session() -> None:
    """Of three groups, each follows the one before with other settings, from a start that its head allows.
    Owners crash and move at any commit, also before the first; the followed groups go on meanwhile."""
    assert [text for seed in range(SEEDS) if (text := seam_difference(seed))] == []


def test_a_following_group_folds_the_log_from_its_start_without_what_is_covered() -> None:
    """Its sessions are a function of log, settings, start and covered keys, whatever its owners do."""
    assert [text for seed in range(SEEDS) if (text := fold_difference(seed))] == []
