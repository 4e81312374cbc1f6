"""`make mutate`: changes the cores in small ways, one at a time, and lists the changes that no unit test
noticed.

mutmut makes the mutants and runs, for each, the unit tests that reach the changed function (`[tool.mutmut]`
in `pyproject.toml` says which files and tests). A survivor is either a missing test or a change without
effect; those are explained in `explained.txt`. The run fails while a survivor is not. Results are kept in
`mutants/`, so a second run tests only what has changed. `make mutate ARGS='services.consumer.core.sessions*'`
runs a part.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

EXPLAINED = Path(__file__).with_name("explained.txt")
MUTMUT = (sys.executable, "-m", "mutmut")
SURVIVED = re.compile(r"^\s*(\S+): (survived|no tests)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Survivors of `module` (a regular expression) whose changed line matches `line` have no effect, because
    …"""

    module: re.Pattern[str]
    line: re.Pattern[str]
    reason: str

    def covers(self, mutant: str, diff: str) -> bool:
        """Whether it explains this survivor."""
        return self.module.match(mutant) is not None and self.line.search(diff) is not None


def read_explanations(text: str) -> list[Explanation]:
    """One a line: `MODULE | CHANGE | REASON`; lines that begin with `#` are for the reader."""
    found = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            module, change, reason = (part.strip() for part in line.split(" | "))
            found.append(Explanation(re.compile(module), re.compile(change), reason))
    return found


def change_of(mutant: str) -> str:
    """What mutmut changed: removed lines with `-`, added ones with `+`."""
    shown = subprocess.run([*MUTMUT, "show", mutant], capture_output=True, text=True, check=True).stdout
    lines = [line for line in shown.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return "\n".join(line[0] + line[1:].strip() for line in lines)


def main(patterns: list[str]) -> int:
    """Runs the mutants that match; 1 when a survivor is not explained."""
    subprocess.run([*MUTMUT, "run", *patterns], check=True)
    results = subprocess.run([*MUTMUT, "results"], capture_output=True, text=True, check=True).stdout
    explanations = read_explanations(EXPLAINED.read_text())
    explained = 0
    missing = []
    for mutant, outcome in SURVIVED.findall(results):
        change = change_of(mutant)
        if any(explanation.covers(mutant, change) for explanation in explanations):
            explained += 1
        else:
            missing.append(f"{mutant} ({outcome})\n{change}")
    print("\n\n".join(missing))
    print(f"\n{len(missing)} survivors without an explanation, {explained} with one")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
