"""What Baton runs on: the Python packages of `locks/dev.lock` and the jars of `cli/jars.lock`.

Both files hold the checksums that set-up verifies. Used by the bill of materials and the audit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from cli.stack.jars.lock import Jar

ROOT = Path(__file__).parents[1]
PYTHON_LOCK = ROOT / "locks" / "dev.lock"
_HASH = re.compile(r"\s--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A locked Python package; each of its files has one of the checksums."""

    name: str
    version: str
    sha256: tuple[str, ...]

    @property
    def purl(self) -> str:
        """The package URL (https://github.com/package-url/purl-spec)."""
        return f"pkg:pypi/{self.name}@{self.version}"


def read_packages(text: str) -> list[Package]:
    """The packages of a lock file that pip-compile wrote.

    >>> read_packages("click==8.3.0 ; python_version >= '3' \\\\\\n    --hash=sha256:" + 64 * "a")[0].purl
    'pkg:pypi/click@8.3.0'
    """
    packages = []
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        requirement = Requirement(_HASH.sub("", line).strip())
        (pin,) = requirement.specifier
        packages.append(
            Package(name=requirement.name, version=pin.version, sha256=tuple(_HASH.findall(line)))
        )
    return packages


def purl_of(jar: Jar) -> str:
    """The package URL of a jar."""
    return f"pkg:maven/{jar.group}/{jar.artifact}@{jar.version}"
