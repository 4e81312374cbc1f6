"""The settings of a Spark cluster whose processes authenticate each other by a shared secret.

They are the same for the driver, the master and the workers. Each reads them from a file that only its owner
can read, because any user can see a process's arguments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from shared.service.private_files import write_private

SPARK_LOCKS: Final = (
    "spark.authenticate true",
    "spark.network.crypto.enabled true",
    "spark.io.encryption.enabled true",
)
"""Lines of a properties file of Spark."""


def write_spark_locks(file: Path, secret: str) -> Path:
    """Writes the settings, with which only holders of the secret are admitted. Raises OSError."""
    write_private(file, "\n".join((*SPARK_LOCKS, f"spark.authenticate.secret {secret}", "")).encode())
    return file
