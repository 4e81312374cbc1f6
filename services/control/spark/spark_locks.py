"""What the processes of a Spark cluster demand of each other if they share a secret.

The same for the driver, the master and the workers. Each reads it from a file that only its owner may read,
because everybody can see a process's arguments.
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
"""Lines of a file of Spark's settings."""


def write_spark_locks(file: Path, secret: str) -> Path:
    """Writes the settings that admit only who knows the secret. Raises OSError."""
    write_private(file, "\n".join((*SPARK_LOCKS, f"spark.authenticate.secret {secret}", "")).encode())
    return file
