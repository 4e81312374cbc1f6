"""Digests of simulated runs, from a process of their own: a seed must give the same run in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def digests(module: str, hash_seed: str) -> list[str]:
    """What `python -m MODULE 0..6 --digest` prints with this PYTHONHASHSEED, by lines."""
    command = [sys.executable, "-m", module, "0..6", "--digest"]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True, timeout=120
    )
    return done.stdout.splitlines()
