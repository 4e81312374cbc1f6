"""The folder of a driver: how control gives the next run to a driver that waits for one.

In `<runs>/drivers/<id>/` the driver keeps its `work`, and in `state.json` which run it works on, or that it
waits. Control puts the folder of the next run into the file `next`. A driver that has waited for long enough
puts an empty `next` there itself. Whoever comes first creates the file, so no run gets lost between them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

POLL_S: Final = 0.05
DRIVERS: Final = "drivers"
"""The folder of these folders, beside those of the runs."""


class DriverPhase(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver does: it works on `run`, or (`is_idle`) waits for another one after it."""

    run: str
    is_idle: bool = False


class DriverFolder:
    """The folder at `path`, for both sides."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"<DriverFolder {self.path}>"

    @property
    def work(self) -> Path:
        """Where Spark keeps its temporary files."""
        return self.path / "work"

    def phase(self) -> DriverPhase | None:
        """What the driver does; None before it has said so, or when the folder is gone."""
        try:
            return msgspec.json.decode((self.path / "state.json").read_bytes(), type=DriverPhase)
        except (OSError, msgspec.DecodeError):
            return None

    def give(self, run: Path | None) -> bool:
        """Gives the waiting driver its next run, or (None) tells it to end; whether it takes it."""
        fresh = self.path / f"next.{os.getpid()}"
        try:
            fresh.write_text(str(run or ""))
            os.link(fresh, self.path / "next")
        except OSError:  # another run, or the driver's own end, was first
            return False
        finally:
            with contextlib.suppress(OSError):
                fresh.unlink()
        return True

    def work_on(self, run: str) -> None:
        """The driver says which run it works on. Raises OSError."""
        self._say(DriverPhase(run=run))

    def await_next(self, run: str, idle_s: float, is_fit: Callable[[], bool]) -> Path | None:
        """The folder of the run that comes after `run`; None once nobody gives one any more.

        That is after `idle_s`, when control says so or has removed the folder, or when the driver `is_fit` no
        longer. Raises OSError.
        """
        until_s = time.monotonic() + idle_s
        self._say(DriverPhase(run=run, is_idle=True))
        while not (self.path / "next").exists():
            if time.monotonic() > until_s or not is_fit() or not self.path.is_dir():
                self.give(None)
                break
            time.sleep(POLL_S)
        try:
            following = (self.path / "next").read_text()
            (self.path / "next").unlink()
        except OSError:
            return None
        return Path(following) if following else None

    def _say(self, phase: DriverPhase) -> None:
        fresh = self.path / "state.tmp"
        fresh.write_bytes(msgspec.json.encode(phase))
        fresh.replace(self.path / "state.json")
