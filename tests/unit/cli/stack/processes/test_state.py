"""The state and the lock of a running stack in its home."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from cli.stack.faults import AlreadyRunning
from cli.stack.processes.identity import Identity
from cli.stack.processes.state import ProcessState, StackState, load_state, lock_home, save_state, state_file

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


def test_nobody_else_reads_what_a_stack_stores(tmp_path: Path) -> None:
    """Kafka's segments and the lake hold people's data; servers write them with the modes they are given."""
    home = tmp_path / "home"

    with lock_home(home):
        subprocess.run(["mkdir", str(home / "kafka")], check=True)
        subprocess.run(["touch", str(home / "kafka" / "segment")], check=True)
    (tmp_path / "after").touch()

    modes = [stat.S_IMODE(path.stat().st_mode) for path in (home, home / "kafka", home / "kafka" / "segment")]
    assert modes == [0o700, 0o700, 0o600]
    assert stat.S_IMODE((tmp_path / "after").stat().st_mode) != 0o600


def test_a_home_that_was_there_before_stays_open_and_its_data_are_closed(tmp_path: Path) -> None:
    """It may hold more than the stack. What an earlier version has left open is closed as well."""
    (tmp_path / "kafka").mkdir(mode=0o755)
    tmp_path.chmod(0o755)

    with lock_home(tmp_path):
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path, tmp_path / "kafka")]

    assert modes == [0o755, 0o700]
