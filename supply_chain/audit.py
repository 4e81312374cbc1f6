"""The audit of the dependencies for known holes: `python -m supply_chain.audit`, or `make audit-deps`.

pip-audit asks a database about the Python packages; OSV (https://osv.dev) is asked about the jars, which
pip-audit does not know. What could not be checked is reported and is a failure: pip-audit itself exits with 0
when its database knows nothing about a package, which looks like a clean result.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cli.stack.jars.lock import Jar, read_lock
from supply_chain.locked import PYTHON_LOCK, purl_of, read_packages

OSV = "https://api.osv.dev/v1/querybatch"
TIMEOUT_S = 60.0
CLEAN, HOLES, UNCHECKED = 0, 1, 3
"""Exit codes; holes come before parts that were not checked."""

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]
Post = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Of `total` packages of one kind, `checked` were checked; `why` says why not all."""

    kind: str
    total: int
    checked: int = 0
    holes: list[str] = field(default_factory=list)
    why: str = ""

    def lines(self) -> list[str]:
        """The findings for a person."""
        result = [f"{self.kind}: {self.checked} of {self.total} checked, {len(self.holes)} known holes"]
        if self.checked < self.total:
            result.append(f"{self.kind}: {self.total - self.checked} NOT CHECKED: {self.why}")
        return result + [f"  {hole}" for hole in self.holes]


def audit_packages(pip_audit: str, run: Run) -> Findings:
    """The holes of the locked Python packages, as the program `pip_audit` finds them."""
    kind, total = "Python packages", len(read_packages(PYTHON_LOCK.read_text()))
    # --disable-pip: the lock is complete, and nothing needs to be resolved or built
    argv = [pip_audit, "--disable-pip", "--require-hashes", "--requirement", str(PYTHON_LOCK)]
    try:
        answer = run([*argv, "--format", "json", "--progress-spinner", "off"])
        rows = json.loads(answer.stdout)["dependencies"]
    except OSError as error:
        return Findings(
            kind="Python packages", total=total, why=f"{pip_audit} cannot be run: {error.strerror}"
        )
    except (ValueError, KeyError, TypeError):
        return Findings(kind=kind, total=total, why=f"no database: {_last_line(answer.stderr)}")
    # markers (of the platform) exclude some; a package without the list of its holes was not looked up
    checked = [row for row in rows if "vulns" in row]
    skipped = [row for row in rows if "vulns" not in row]
    return Findings(
        kind=kind,
        total=len(rows) or total,
        checked=len(checked),
        holes=[f"{row['name']} {row['version']}: {_hole(hole)}" for row in checked for hole in row["vulns"]],
        why=f"the database does not answer for them, e.g. {skipped[0]['skip_reason']}" if skipped else "",
    )


def audit_jars(jars: Sequence[Jar], post: Post) -> Findings:
    """The holes of the jars, as OSV knows them."""
    queries = [{"package": {"purl": purl_of(jar)}} for jar in jars]
    try:
        results = json.loads(post(json.dumps({"queries": queries}).encode()))["results"]
        found = list(zip(jars, results, strict=True))
    except OSError as error:
        return Findings(kind="jars", total=len(jars), why=f"{OSV} cannot be reached: {error}")
    except (ValueError, KeyError, TypeError):
        return Findings(kind="jars", total=len(jars), why=f"{OSV} gave an answer that is not OSV's")
    holes = [f"{purl_of(jar)}: {hole['id']}" for jar, result in found for hole in result.get("vulns", [])]
    return Findings(kind="jars", total=len(jars), checked=len(jars), holes=holes)


def exit_code(findings: Sequence[Findings]) -> int:
    """CLEAN only if everything was checked and has no known hole."""
    if any(one.holes for one in findings):
        return HOLES
    return UNCHECKED if any(one.checked < one.total for one in findings) else CLEAN


def main(arguments: list[str]) -> int:
    """Audits with the pip-audit that is the only argument, and prints the findings. Returns the exit code."""
    if len(arguments) != 1:
        print("usage: python -m supply_chain.audit PIP_AUDIT", file=sys.stderr)
        return 2
    findings = [audit_packages(arguments[0], _run), audit_jars(read_lock(), _post)]
    for one in findings:
        print("\n".join(one.lines()))
    return exit_code(findings)


def _hole(hole: dict[str, Any]) -> str:
    fixed = ", ".join(hole.get("fix_versions", []))
    return f"{hole['id']} ({f'fixed in {fixed}' if fixed else 'not fixed yet'})"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1][:300]


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def _post(body: bytes) -> bytes:
    request = urllib.request.Request(OSV, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        content: bytes = response.read()
    return content


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
