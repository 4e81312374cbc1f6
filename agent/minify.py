"""Minifies `agent.js` to `agent.min.js`, which producers serve; run by `make agent`.

npm's terser does it, in one version, so that every machine gets the same bytes. The first line has the digest
of the source. Needs Node's `npx`, which downloads terser at its first use.
`agent/tests/test_agent_built.py` compares the result.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

FOLDER = Path(__file__).parent
TERSER = ("npx", "--yes", "--prefer-offline", "terser@5.51.2")
_OPTIONS = ("--compress", "passes=3", "--mangle", "--ecma", "2018")


def first_line(source: bytes) -> str:
    """The comment above the minified source, with its digest."""
    return f"/*! Baton agent, readable: agent.source.js, sha256 {hashlib.sha256(source).hexdigest()} */"


def minified(source: bytes) -> bytes:
    """The minified source. Raises OSError without npx, CalledProcessError if terser fails; takes 1 s."""
    command = [*TERSER, *_OPTIONS, "--format", f"preamble='{first_line(source)}'"]
    return subprocess.run(command, input=source, stdout=subprocess.PIPE, check=True).stdout.removesuffix(
        b"\n"
    )


if __name__ == "__main__":
    (FOLDER / "agent.min.js").write_bytes(minified((FOLDER / "agent.js").read_bytes()))
