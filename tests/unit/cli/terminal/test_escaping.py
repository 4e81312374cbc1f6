"""What reaches a terminal, and what reaches a file or a pipe."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.main import main
from cli.terminal.escaping import echo
from cli.terminal.output import print_csv, print_json, print_table

HOSTILE = "é\x1b[2J\x07\x9b31m\u202e\\"
SHOWN = r"é\x1b[2J\x07\x9b31m\u202e" + "\\"
END = "<end>"
ROOT = Path(__file__).parents[4]


@contextlib.contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Makes standard output and error a terminal during the block; then the list has what it got."""
    ours, theirs = os.openpty()
    got: list[str] = []
    with os.fdopen(theirs, "w", encoding="utf-8") as stream, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        patched.setattr(sys, "stderr", stream)
        yield got
        stream.write(END)
        stream.flush()
        written = b""
        while not written.endswith(END.encode()):  # a read returns what has come through so far
            written += os.read(ours, 100_000)
        got.append(written.decode().removesuffix(END))
    os.close(ours)


def test_a_terminal_gets_nothing_that_it_could_obey(monkeypatch: pytest.MonkeyPatch) -> None:
    """In text, in bytes, in CSV and JSON, and in errors; line ends and tabs are ours."""
    # where our own tables have no bold headings
    monkeypatch.setenv("TERM", "dumb")
    with terminal(monkeypatch) as got:
        echo(f"{HOSTILE}\n\t.")
        echo(HOSTILE.encode() + b"\xff", err=True)
        print_csv([{HOSTILE: HOSTILE}])
        print_json(HOSTILE)
        print_table([f"[b]{HOSTILE}"], [[f"[b]{HOSTILE}"]], title=f"[b]{HOSTILE}")
        monkeypatch.setattr(sys, "argv", ["baton", "generate", HOSTILE])
        with pytest.raises(SystemExit):
            main()

    text = got[0].replace("\r\n", "\n")
    assert [c for c in text if not c.isprintable() and c not in "\n\t"] == []
    assert text.count(SHOWN) == 4 + 3
    assert text.count(f"[b]{SHOWN}") == 3
    assert "Error: Got unexpected extra argument" in text
    assert rf"{SHOWN}\xff" in text


def test_a_pipe_gets_everything_unaltered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that reads it must find what was stored."""
    piped = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    monkeypatch.setattr(sys, "stdout", piped)

    echo(HOSTILE)
    print_csv([{"a": HOSTILE}])

    piped.flush()
    assert piped.buffer.getvalue().decode() == f"{HOSTILE}\na\n{HOSTILE}\n"


def test_commands_print_by_echo_alone() -> None:
    """Each other way would be a hole; `secho` is for words of ours."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "cli").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("click.echo", "print", "sys.stdout.write")
    ]

    assert [place.split(":")[0] for place in found] == ["cli/terminal/escaping.py"]
