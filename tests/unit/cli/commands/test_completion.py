"""Shells complete commands, options and choices, and importing nothing for the names of commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from cli.commands.completion import INSTALL
from cli.main import COMMANDS, COMPLETING, cli


def completed(words: str, at: int, **more: str) -> dict[str, str]:
    """What bash is offered for the word `at` of the command line: each value with its kind."""
    asked = {COMPLETING: "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
    argv = [sys.executable, "-m", "cli.main"]
    answer = subprocess.run(
        argv, capture_output=True, text=True, timeout=60, check=True, env={**os.environ, **asked, **more}
    )
    assert answer.stderr == ""
    lines = (line.partition(",") for line in answer.stdout.splitlines())
    return {value: kind for kind, _, value in lines}


def test_commands_are_completed() -> None:
    """All of them for an empty word, else those that begin like it."""
    assert completed("baton ", 1).keys() == COMMANDS.keys()
    assert completed("baton str", 1).keys() == {"streams", "stream"}


def test_options_and_choices_are_completed() -> None:
    """Of the command on the line, and of a command within a group."""
    assert {"--owner", "--sort", "--watch"} <= completed("baton streams --", 2).keys()
    assert completed("baton streams -o ", 3).keys() == {"text", "json", "jsonl", "csv"}
    assert completed("baton rejected re", 2).keys() == {"replay"}


def test_a_misspelt_variable_does_not_spoil_a_completion() -> None:
    """The warning would land in the line that is being typed."""
    assert completed("baton str", 1, BATON_GRUOP="x").keys() == {"streams", "stream"}


def test_completing_a_command_imports_none() -> None:
    """A shell waits for the answer at each Tab."""
    program = (
        "import sys, os\n"
        "from cli.main import cli, LazyGroup\n"
        "import click\n"
        "assert isinstance(cli, LazyGroup)\n"
        "found = cli.shell_complete(click.Context(cli), '')\n"
        "print(len(found), [name for name in ('rich', 'httpx', 'cli.stack') if name in sys.modules])"
    )

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert answer.stdout.split(maxsplit=1) == [str(len(COMMANDS)), "[]\n"]


@pytest.mark.parametrize("shell", INSTALL)
def test_each_shell_has_a_script_that_asks_baton(shell: str) -> None:
    """The shell itself accepts it, where it is installed."""
    script = CliRunner().invoke(cli, ["completion", shell])

    assert script.exit_code == 0
    assert f"{COMPLETING}={shell}_complete" in script.stdout
    if path := shutil.which(shell):
        subprocess.run([path, "-n"], input=script.stdout, text=True, check=True)
