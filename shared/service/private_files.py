"""Files that only their owner may read: private keys, passwords, configuration that holds them."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Writes the file with mode 0600; at no moment may others read it, nor see half of it.

    It takes the place of an older one in one step: processes that run read it again at any time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)  # left by a process that was killed
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    unfinished.replace(path)
