"""The state and the lock of a running stack in its home."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.stack.faults import AlreadyRunning
from cli.stack.identity import Identity
from cli.stack.state import (
    ProcessState,
    StackState,
    load_state,
    lock_home,
    save_state,
    state_file,
)

STATE = StackState(
    supervisor=Identity(42, "then"),
    ready=True,
    processes=[ProcessState(name="kafka", address="a:1", identity=Identity(43, "later"))],
)


def test_the_state_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    """Another process can read identities and addresses."""
    save_state(tmp_path, STATE)

    assert load_state(tmp_path) == STATE
    assert [path.name for path in tmp_path.iterdir()] == ["stack.json"]


def test_a_missing_or_damaged_state_is_none(tmp_path: Path) -> None:
    """Whatever a crash left behind, loading never fails."""
    assert load_state(tmp_path) is None

    state_file(tmp_path).write_text('{"supervisor": ')

    assert load_state(tmp_path) is None


def test_a_home_has_one_stack_at_a_time(tmp_path: Path) -> None:
    """A second one gets the pid of the first; after the first has ended it can start."""
    with lock_home(tmp_path):
        save_state(tmp_path, STATE)
        with pytest.raises(AlreadyRunning, match=r"already running in .* \(pid 42\)"), lock_home(tmp_path):
            pass

    with lock_home(tmp_path):
        pass
