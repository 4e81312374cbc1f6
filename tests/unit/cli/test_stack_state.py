"""What a running stack leaves in its home, and the lock that says that it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.stack.faults import AlreadyRunning
from cli.stack.identity import Identity
from cli.stack.state import (
    ProcessState,
    StackState,
    forget_state,
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


def test_the_state_comes_back_as_it_was_stored(tmp_path: Path) -> None:
    """Pids, starts and addresses survive the process that wrote them."""
    save_state(tmp_path, STATE)

    assert load_state(tmp_path) == STATE
    assert [path.name for path in tmp_path.iterdir()] == ["stack.json"]


def test_no_state_and_a_damaged_one_are_none(tmp_path: Path) -> None:
    """Whoever reads the state never fails on what a crash left there."""
    nothing = load_state(tmp_path)
    state_file(tmp_path).write_text('{"supervisor": ')
    damaged = load_state(tmp_path)
    forget_state(tmp_path)

    assert (nothing, damaged) == (None, None)
    assert not state_file(tmp_path).exists()


def test_a_home_is_held_by_one_stack_alone(tmp_path: Path) -> None:
    """The second one is told who holds it and what can be done; after the first it may."""
    with lock_home(tmp_path):
        save_state(tmp_path, STATE)
        with pytest.raises(AlreadyRunning, match=r"already running in .* \(pid 42\)"), lock_home(tmp_path):
            pass

    with lock_home(tmp_path):
        pass
