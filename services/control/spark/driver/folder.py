"""The folder of a driver, through which control gives a waiting driver its next run.

In `<runs>/drivers/<id>/` the driver keeps its temporary files (`work`), and writes to `state.json` which run
it works on, and how far it is with it, or that it waits. Control writes the path of the next run's folder to
a file that is named after the run before. A driver that has waited long enough creates this file itself,
empty. The file is created only once and stays, so no run is lost between the two, and no driver is given two.
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
"""The folder that contains the drivers' folders; it is beside those of the runs."""
_AFTER: Final = "after-"


class DriverPhase(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver is doing: it works on `run`, or (`is_idle`) waits for another one after it.

    `has_begun`: it has all that the run needs but perhaps its lock, for which it may have to wait.
    """

    run: str
    is_idle: bool = False
    has_begun: bool = False


class DriverFolder:
    """The folder at `path`, as both control and the driver use it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"<DriverFolder {self.path}>"

    @property
    def work(self) -> Path:
        """Where Spark keeps its temporary files."""
        return self.path / "work"

    def phase(self) -> DriverPhase | None:
        """What the driver is doing; None before it has written that, or when the folder is gone."""
        try:
            return msgspec.json.decode((self.path / "state.json").read_bytes(), type=DriverPhase)
        except (OSError, msgspec.DecodeError):
            return None

    def give(self, run: Path | None) -> bool:
        """Gives the waiting driver its next run, or (None) tells it to end. False if that came too late."""
        phase = self.phase()
        if phase is None or not phase.is_idle:
            return False
        fresh = self.path / f"next.{os.getpid()}"
        try:
            fresh.write_text(str(run or ""))
            os.link(fresh, self._after(phase.run))
        except OSError:  # it exists: another run came first, or the driver is about to end
            return False
        finally:
            with contextlib.suppress(OSError):
                fresh.unlink()
        return True

    def was_given(self, run: Path) -> bool:
        """Whether control has given this run to the driver, whether or not the driver has noticed."""
        for following in self.path.glob(f"{_AFTER}*"):
            with contextlib.suppress(OSError):
                if following.read_text() == str(run):
                    return True
        return False

    def work_on(self, run: str, *, has_begun: bool = False) -> None:
        """Writes that the driver works on this run. Raises OSError."""
        self._write_phase(DriverPhase(run=run, has_begun=has_begun))

    def await_next(self, run: str, idle_s: float, lives: Callable[[], bool]) -> Path | None:
        """The folder of the run that comes after `run`; None if the driver should end.

        It should end after `idle_s`, when control says so or has removed the folder, or when `lives` returns
        False. Raises OSError.
        """
        until_s = time.monotonic() + idle_s
        self._write_phase(DriverPhase(run=run, is_idle=True))
        while not self._after(run).exists():
            if time.monotonic() > until_s or not lives() or not self.path.is_dir():
                self.give(None)
                break
            time.sleep(POLL_S)
        try:
            following = self._after(run).read_text()
        except OSError:
            return None
        return Path(following) if following else None

    def _after(self, run: str) -> Path:
        return self.path / f"{_AFTER}{run}"

    def _write_phase(self, phase: DriverPhase) -> None:
        fresh = self.path / "state.tmp"
        fresh.write_bytes(msgspec.json.encode(phase))
        fresh.replace(self.path / "state.json")
