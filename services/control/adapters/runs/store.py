"""The folders of the runs on disk: what control writes for the driver, and what the driver leaves there.

In `<runs>/<id>/`, control writes `request.json` and `run.json`; the driver writes `driver.json`,
`driver.log`, and `result.json` or `error.json`. Every JSON file appears whole, by a rename.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from services.control.core.runs.run import LogPart, Run, RunError
from services.control.spark.run.request import RunRequest
from shared.errors import Conflict

MAX_LAST_WORDS = 300
LOG_PART = 16 * 1024

T = TypeVar("T")


class RunsInUse(Conflict):
    """Another control uses the folder of the runs."""


class DriverUp(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver reports once Spark is up: the address of Spark's UI, and the application's id.

    `first_job`: Spark's number of the run's first job; lower ones belong to earlier runs of the driver.
    """

    pid: int = 0
    ui: str | None = None
    application: str | None = None
    first_job: int = 0


class RunStore:
    """The runs under one folder, which is created if it is missing. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)

    def __repr__(self) -> str:
        return f"<RunStore {self.folder}>"

    @contextlib.contextmanager
    def reserved(self) -> Iterator[None]:
        """Keeps the runs for this control alone during the block. Raises RunsInUse."""
        with (self.folder / "lock").open("w") as file:
            # the kernel releases the lock when the process dies, so a crash leaves no stale one
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunsInUse(
                    f"another control keeps its runs in {self.folder}: give this one another BATON_RUNS"
                ) from None
            yield

    def folder_of(self, run_id: str) -> Path:
        """The folder of the run's files."""
        return self.folder / run_id

    def create(self, run: Run, request: RunRequest) -> None:
        """Creates the run's folder with its request and record. Raises OSError."""
        self.folder_of(run.id).mkdir(parents=True)
        _write(self.folder_of(run.id) / "request.json", msgspec.json.encode(request))
        self.save(run)

    def save(self, run: Run) -> None:
        """Writes the run's record. Raises OSError."""
        _write(self.folder_of(run.id) / "run.json", msgspec.json.encode(run))

    def load(self) -> list[Run]:
        """Every run with a readable record, oldest first."""
        runs = []
        for path in sorted(self.folder.glob("*/run.json")):
            run = _read(path, Run)
            if run is not None and run.id == path.parent.name:
                runs.append(run)
        return sorted(runs, key=lambda run: (run.started_at, run.id))

    def remove(self, run_id: str) -> None:
        """Removes the run's folder, as far as it can be removed."""
        shutil.rmtree(self.folder_of(run_id), ignore_errors=True)

    def driver(self, run_id: str) -> DriverUp | None:
        """What the driver reported; None before Spark is up."""
        return _read(self.folder_of(run_id) / "driver.json", DriverUp)

    def has_result(self, run_id: str) -> bool:
        """Whether the driver has published a result."""
        return (self.folder_of(run_id) / "result.json").is_file()

    def result(self, run_id: str) -> dict[str, Any] | None:
        """The result that the driver has published, or None."""
        return _read(self.folder_of(run_id) / "result.json", dict)

    def error(self, run_id: str) -> RunError | None:
        """The error that the driver has published, or None."""
        return _read(self.folder_of(run_id) / "error.json", RunError)

    def log(self, run_id: str, after: int | None) -> LogPart:
        """At most `LOG_PART` bytes of the driver's log, from byte `after` on; None: the last ones."""
        try:
            with (self.folder_of(run_id) / "driver.log").open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                first = max(0, size - LOG_PART) if after is None else min(after, size)
                log.seek(first)
                raw = log.read(LOG_PART)
        except OSError:
            size, first, raw = 0, 0, b""
        return LogPart(first=first, next=first + len(raw), size=size, text=raw.decode(errors="replace"))

    def last_words(self, run_id: str) -> str:
        """The last non-empty line of the driver's output, shortened; "" without one."""
        with contextlib.suppress(OSError), (self.folder_of(run_id) / "driver.log").open("rb") as log:
            log.seek(0, os.SEEK_END)
            # the last lines are enough, and a log may have gigabytes
            log.seek(max(0, log.tell() - 8192))
            lines = log.read().decode(errors="replace").split("\n")
            return next((line.strip()[:MAX_LAST_WORDS] for line in reversed(lines) if line.strip()), "")
        return ""


def _write(path: Path, content: bytes) -> None:
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        # without it a power cut could leave the new name with an empty file
        os.fsync(file.fileno())
    fresh.rename(path)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
