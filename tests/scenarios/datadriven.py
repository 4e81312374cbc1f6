"""Scenario files as etcd-raft has them: a command, `----`, and what it printed.

    # Anything after a hash is for the reader.
    join b at=http://b
    ----
    joined

A step ends at an empty line. Several commands may stand above one `----`; what they print is joined. A world
carries the commands out. `python -m pytest tests/scenarios --rewrite` writes what it prints into the files: a
changed rule shows as a diff, to be read and committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

SEPARATOR = "----"


@dataclass(frozen=True, slots=True)
class Command:
    """`send c1 to=b` has the name `send`, the words `["c1"]` and the options `{"to": "b"}`."""

    name: str
    words: list[str]
    options: dict[str, str]

    def word(self, at: int = 0, default: str = "") -> str:
        """The word at this place."""
        return self.words[at] if at < len(self.words) else default


class ScenarioWorld(Protocol):
    """What a scenario runs against; a new one for each file."""

    def run(self, command: Command) -> str:
        """Carries the command out; what it prints, without a line end. Raises KeyError for an unknown one."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """Lines of commands (with comments) and what they are expected to print; `line`: of its first line."""

    line: int
    lines: list[str]
    expected: str


def parse(text: str) -> list[Step]:
    """The steps of a scenario file. Raises ValueError at a block without a separator that has commands."""
    steps = []
    line = 1
    for block in text.rstrip("\n").split("\n\n"):
        lines = block.split("\n")
        if SEPARATOR in lines:
            at = lines.index(SEPARATOR)
            steps.append(Step(line, lines[:at], "\n".join(lines[at + 1 :])))
        elif all(not found or found.startswith("#") for found in lines):
            steps.append(Step(line, lines, ""))
        else:
            raise ValueError(f"line {line}: a step without {SEPARATOR!r}")
        line += len(lines) + 1
    return steps


def parse_command(line: str) -> Command | None:
    """The command of a line; None for a comment."""
    parts = line.partition("#")[0].split()
    if not parts:
        return None
    options = dict(part.split("=", 1) for part in parts[1:] if "=" in part)
    return Command(parts[0], [part for part in parts[1:] if "=" not in part], options)


def run_scenario(path: Path, make_world: Callable[[], ScenarioWorld], *, rewrite: bool) -> list[str]:
    """Runs a file from its beginning; each step that printed something else, or nothing after a rewrite."""
    world, differences, blocks = make_world(), [], []
    for step in parse(path.read_text()):
        commands = [command for line in step.lines if (command := parse_command(line)) is not None]
        if not commands:
            blocks.append("\n".join(step.lines))
            continue
        printed = "\n".join(said for command in commands if (said := world.run(command))) or "ok"
        if printed != step.expected:
            lines = "\n".join(step.lines)
            differences.append(
                f"{path.name}:{step.line}\n{lines}\n-- expected\n{step.expected}\n-- printed\n{printed}"
            )
        blocks.append("\n".join([*step.lines, SEPARATOR, printed]))
    if rewrite:
        path.write_text("\n\n".join(blocks) + "\n")
        return []
    return differences
