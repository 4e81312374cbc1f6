"""What a worker process knows about itself: its number, its id, the folder it shares, and its parent.

The supervisor starts workers by their command line (`supervisor.py`). A worker's standard input is a pipe
whose other end the supervisor holds. When the supervisor is gone, for whatever reason, the pipe reaches its
end and the worker stops. Used by `__main__.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from services.producer.settings import ProducerSettings

OPTION = "--worker"
"""`--worker NUMBER FOLDER` at the end of a command line makes the process a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One worker: its number, and the folder that it shares with the other workers."""

    number: int
    folder: Path

    @classmethod
    def from_argv(cls, argv: list[str]) -> Self | None:
        """The worker that this command line describes; None if the process is not a worker."""
        if OPTION not in argv:
            return None
        number, folder = argv[argv.index(OPTION) + 1 :][:2]
        return cls(number=int(number), folder=Path(folder))

    @property
    def arguments(self) -> list[str]:
        """The end of the command line that `from_argv` reads."""
        return [OPTION, str(self.number), str(self.folder)]

    @property
    def ready_file(self) -> Path:
        """Exists once any worker has been ready."""
        return self.folder / "ready"

    def settings(self, settings: ProducerSettings) -> ProducerSettings:
        """The settings with the worker's own id: `host-8001.0`, `host-8001.1`, …."""
        return dataclasses.replace(settings, producer=f"{settings.id}.{self.number}")

    def add_number_to_logs(self) -> None:
        """Adds the field `worker` to every log line of the process from now on."""
        make = logging.getLogRecordFactory()

        def with_worker(*args: Any, **kwargs: Any) -> logging.LogRecord:
            record = make(*args, **kwargs)
            record.worker = self.number
            return record

        logging.setLogRecordFactory(with_worker)

    def stop_with_parent(self, stop: asyncio.Event, grace_s: float) -> None:
        """Sets `stop` when the parent is gone, and exits the process if it is not stopped `grace_s` later.

        Exits at once if it was stopping already. A thread watches, because a busy or hanging event loop would
        not notice.
        """
        loop = asyncio.get_running_loop()

        def wait() -> None:
            # blocks until the other end of the pipe closes, which the kernel does even for a killed parent
            while os.read(sys.stdin.fileno(), 1):
                pass
            if not stop.is_set():
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(stop.set)
                time.sleep(grace_s)
            os._exit(1)

        threading.Thread(target=wait, name="watch parent", daemon=True).start()
