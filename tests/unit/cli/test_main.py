"""The command line as a whole: fast help, a place for every command, one sentence for every error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import COMMANDS
from cli.stack.options import StackOptions
from cli.terminal.exit_codes import ExitCode
from shared.errors import SettingsInvalid


def test_help_imports_no_command() -> None:
    """`baton --help` lists every command without importing their libraries."""
    program = "import sys; from cli.main import main; sys.argv = ['baton', '--help']\ntry: main()\n" + (
        "finally: print([name for name in ('rich', 'httpx', 'aiokafka', 'cli.stack') if name in sys.modules])"
    )

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert answer.stdout.splitlines()[-1] == "[]"
    assert all(f"  {name} " in answer.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_where_the_table_says(name: str) -> None:
    """Each name leads to a command with a help text."""
    assert COMMANDS[name].load().help


def test_wrong_options_are_one_sentence_per_fault() -> None:
    """Each option out of its range is reported on standard error, without a traceback."""
    faulty = ("--streams", "0", "--consumers", "65", "--port-offset", "60000", "--namespace", "a/b")
    argv = [sys.executable, "-m", "cli.main", "up", *faulty]

    answer = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    assert answer.returncode == ExitCode.USAGE
    assert answer.stderr.splitlines() == [
        "baton: --consumers 65: must be 0 … 64",
        "baton: --streams 0: must be 1 … 4096",
        "baton: --port-offset 60000: must be -1000 … 56441",
        "baton: --namespace 'a/b': lower-case letters, digits and `-` only",
    ]


def test_a_stack_needs_a_namespace_that_its_lake_can_have() -> None:
    """A table of the lake may not have its name."""
    with pytest.raises(SettingsInvalid, match="--namespace 'reports': a table of the lake has this name"):
        StackOptions(home=Path("home"), namespace="reports").check()


@pytest.mark.parametrize("arguments", [["up"], ["up", "--detach"], ["down"], ["demo"]])
@pytest.mark.parametrize("place", ["file", "file/home"])
def test_a_home_that_cannot_be_used_is_one_sentence(tmp_path: Path, arguments: list[str], place: str) -> None:
    """A file stands in the way of the folder; the sentence names the folder and the reason."""
    (tmp_path / "file").write_text("in the way")
    home = tmp_path / place
    argv = [sys.executable, "-m", "cli.main", *arguments, "--home", str(home)]

    answer = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    assert answer.returncode == ExitCode.REFUSED
    assert len(answer.stderr.splitlines()) == 1
    assert answer.stderr.startswith(f"baton: the home {home} cannot be used: ")
