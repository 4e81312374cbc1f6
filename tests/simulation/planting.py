"""Plants a small fault in a copy of the code, and looks for a seed that finds it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIED = ("services", "shared", "tests")
FOUND = re.compile(r"^seed (\d+) FAILED: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedFault:
    """`seeds`: how many runs must suffice to find it."""

    name: str
    file: str
    text: str
    instead: str
    kinds: tuple[str, ...] = ()
    simulation: str = "tests.simulation"
    seeds: int = 400
    is_rare: bool = False

    def plant(self, root: Path) -> None:
        """Replaces the text in the tree below `root`."""
        path = root / self.file
        source = path.read_text()
        assert source.count(self.text) == 1, f"{self.file} no longer has exactly once:\n{self.text}"
        path.write_text(source.replace(self.text, self.instead))


def copy_tree(to: Path) -> None:
    """A copy of the code and of the simulation."""
    for part in COPIED:
        shutil.copytree(ROOT / part, to / part, ignore=shutil.ignore_patterns("__pycache__", "static"))


def find(fault: PlantedFault, root: Path, within_s: float) -> tuple[int, str] | None:
    """The first seed that fails on the tree below `root`, and what was wrong; None when none does."""
    command = [sys.executable, "-P", "-m", fault.simulation, str(fault.seeds), "--first"]
    if fault.kinds:
        command += ["--kinds", ",".join(fault.kinds)]
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=within_s, check=False
    )
    match = FOUND.search(done.stdout)
    assert match is not None or done.returncode == 0, done.stderr
    return (int(match[1]), match[2]) if match is not None else None
