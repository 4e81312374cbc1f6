"""Plants a small fault in the code as a process imports it, and looks for a seed that finds it.

`python -m tests.simulation.planting FILE TEXT INSTEAD SIMULATION …` runs a simulation in which the file holds
another text. Everything else comes from the tree, and from its bytecode.
"""

from __future__ import annotations

import hashlib
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).parents[2]
FOUND = re.compile(r"^seed (\d+) FAILED: (.*)$", re.MULTILINE)
IMPORTED = re.compile(r"^from (tests\b[\w.]*) import (\w*)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedFault:
    """`seeds`: how many runs must suffice to find it."""

    name: str
    file: str
    text: str
    instead: str
    kinds: tuple[str, ...] = ()
    simulation: str = "tests.simulation.__main__"
    seeds: int = 400
    is_rare: bool = False

    @property
    def is_plantable(self) -> bool:
        """Whether its text stands exactly once in its file."""
        return (ROOT / self.file).read_text().count(self.text) == 1

    def digest(self) -> str:
        """Of the fault, of the file that it spoils and of the simulation that must find it."""
        read = [path.read_text() for path in [ROOT / self.file, *_judge(self.simulation)]]
        return hashlib.sha256("\0".join([repr(self), *read]).encode()).hexdigest()[:16]

    def find(self, within_s: float) -> tuple[int, str] | None:
        """The first seed that fails with the fault, and what was wrong; None when none does."""
        planted = [self.file, self.text, self.instead, self.simulation, str(self.seeds), "--first"]
        command = [sys.executable, "-P", "-m", __name__, *planted]
        if self.kinds:
            command += ["--kinds", ",".join(self.kinds)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=within_s, check=False
        )
        match = FOUND.search(done.stdout)
        assert match is not None or done.returncode == 0, done.stderr
        return (int(match[1]), match[2]) if match is not None else None


@cache
def _judge(simulation: str) -> Sequence[Path]:
    """The files of the tests that the simulation consists of."""
    found: set[Path] = set()

    def follow(module: str) -> None:
        path = (ROOT / module.replace(".", "/")).with_suffix(".py")
        if path in found or not path.exists():
            return
        found.add(path)
        for package, name in IMPORTED.findall(path.read_text()):
            follow(package)
            follow(f"{package}.{name}")

    follow(simulation)
    return sorted(found)


class _Loader(SourceFileLoader):
    """Loads another text than the file's."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        """Compiled here: the stored bytecode is that of the file."""
        return self.source_to_code(self.text, self.path)


class _Finder(MetaPathFinder):
    """Finds what Python would find, but for one file."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text, self.was_imported = str(path), text, False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin == self.path:
            spec.loader = _Loader(fullname, self.path, self.text)
            self.was_imported = True
        return spec


def main(file: str, text: str, instead: str, simulation: str, *arguments: str) -> None:
    """Runs the simulation with the fault planted."""
    path = ROOT / file
    source = path.read_text()
    assert source.count(text) == 1, f"{file} no longer has exactly once:\n{text}"
    finder = _Finder(path, source.replace(text, instead))
    sys.meta_path.insert(0, finder)
    sys.argv[1:] = arguments
    try:
        runpy.run_module(simulation, run_name="__main__", alter_sys=True)
    finally:
        assert finder.was_imported, f"the simulation does not use {file}"


if __name__ == "__main__":
    main(*sys.argv[1:])
