"""The machine and the versions that figures come from, for every bench."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

VERSIONS = ("aiokafka", "aiozk", "fastapi", "msgspec", "uvicorn", "uvloop")


def machine() -> str:
    """The machine and the versions that the figures come from."""
    memory = int(Path("/proc/meminfo").read_text().split()[1]) // 1024 // 1024
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in VERSIONS)
    return (
        f"{os.cpu_count()} cores, {memory} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, {versions}; load before: {load}"
    )
