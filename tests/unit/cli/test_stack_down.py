"""`baton down` goes by stored pids alone, and ends only what was stored."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from cli.stack.down_command import down
from cli.stack.identity import Identity, identify
from cli.stack.state import ProcessState, StackState, load_state, save_state

GONE = Identity(2**22 + 1, "never")
"""No process can have this pid on Linux."""


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])


def run_down(home: Path) -> str:
    result = CliRunner().invoke(down, ["--home", str(home)])
    assert result.exit_code == 0
    return result.output


def test_a_process_that_outlived_its_supervisor_is_ended(tmp_path: Path) -> None:
    """A stack whose supervisor is gone is still taken down whole, and forgotten."""
    with sleeper() as process:
        left = ProcessState(name="kafka", address="a", identity=identify(process.pid))
        save_state(tmp_path, StackState(supervisor=GONE, processes=[left]))

        said = run_down(tmp_path)

        assert process.wait(10) == -signal.SIGKILL
        assert said == "stopped\n"
        assert load_state(tmp_path) is None


def test_a_process_that_only_has_the_stored_pid_lives_on(tmp_path: Path) -> None:
    """After a crash of the machine the stored pids belong to others."""
    with sleeper() as process:
        other = ProcessState(name="kafka", address="a", identity=Identity(process.pid, "long ago"))
        save_state(tmp_path, StackState(supervisor=Identity(process.pid, "long ago"), processes=[other]))

        said = run_down(tmp_path)

        assert said == f"no local stack is running in {tmp_path}\n"
        assert process.poll() is None
        assert load_state(tmp_path) is None
        process.kill()
