"""The drivers that control has started, and which of them wait for another run.

Each has a folder (`spark/driver/folder.py`) with its record, so a restarted control finds the drivers of the
one before. Used by `runner.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from services.control.adapters.runs.process_group import ProcessGroup
from services.control.spark.driver.folder import DRIVERS, DriverFolder
from shared.together import together

KEPT_WARM: Final = 1
"""How many drivers may wait at a time: each keeps a JVM in memory."""

logger = logging.getLogger(__name__)


class DriverRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A driver's process, and a digest of the settings that it was started with.

    A run with other settings cannot use the driver.
    """

    pid: int
    born: str
    place: str


class SparkDrivers:
    """The drivers under `<runs>/drivers`; `place`: what all requests of this control have in common."""

    def __init__(self, runs: Path, place: Any, program: Sequence[str], idle_s: float) -> None:
        self._folder = runs / DRIVERS
        self._place = hashlib.blake2b(msgspec.json.encode(place), digest_size=8).hexdigest()
        self._program = tuple(program)
        self._started: dict[str, ProcessGroup] = {}
        """Drivers that are children of this process."""
        self.idle_s = idle_s

    def __repr__(self) -> str:
        return f"<SparkDrivers in {self._folder}>"

    def folder_of(self, driver: str) -> DriverFolder:
        """The folder of a driver."""
        return DriverFolder(self._folder / driver)

    def start(self, driver: str, run: Path) -> ProcessGroup:
        """A new driver, which begins with this run. Raises OSError."""
        folder = self.folder_of(driver)
        self.remove(driver)  # what a control has left that died before its driver began
        try:
            folder.path.mkdir(parents=True)
            processes = ProcessGroup.start([*self._program, str(run)], log=run / "driver.log")
        except OSError:
            self.remove(driver)
            raise
        self._started[driver] = processes
        record = DriverRecord(pid=processes.leader, born=processes.born, place=self._place)
        (folder.path / "driver.json").write_bytes(msgspec.json.encode(record))
        return processes

    def waiting(self) -> list[tuple[str, ProcessGroup]]:
        """The drivers that wait for a run, newest first."""
        found = [(driver, self._processes(driver)) for driver in self._waiting()]
        return [(driver, processes) for driver, processes in found if processes is not None]

    def find(self, driver: str, run: Path) -> ProcessGroup | None:
        """The processes of the driver, if it was given the run, or was started for it and still works."""
        if not self.folder_of(driver).was_given(run):
            return ProcessGroup.find([*self._program[1:], str(run)])
        record = self._record(driver)
        return ProcessGroup(record.pid, record.born) if record else None

    def has_begun(self, driver: str, run: str) -> bool:
        """Whether the driver needs nothing more for the run but perhaps its lock."""
        phase = self.folder_of(driver).phase() if driver else None
        return phase is not None and phase.run == run and phase.has_begun

    def has_released(self, driver: str, run: str) -> bool:
        """Whether the driver is done with the run: it waits, or works on another one."""
        phase = self.folder_of(driver).phase() if driver else None
        return phase is not None and (phase.is_idle or phase.run != run)

    def end_surplus(self) -> None:
        """Tells waiting drivers beyond `KEPT_WARM` to end."""
        for driver in self._waiting()[KEPT_WARM:]:
            self.folder_of(driver).give(None)

    async def end_all(self) -> None:
        """Ends all drivers in less than 2 s."""
        # a driver that is ending may have removed its folder already: `_started` still knows it
        living = {driver: self._processes(driver) for driver in self._all()} | self._started
        await together(processes.end() for processes in living.values() if processes)
        for driver in living:
            self.remove(driver)
        # a driver that has removed its own folder may still be running
        for processes in self._started.values():
            await processes.end()

    def remove_dead(self, used: Collection[str]) -> None:
        """Removes the folders of drivers that have ended, except those in `used`."""
        self._started = {driver: one for driver, one in self._started.items() if one.is_alive()}
        for driver in self._all():
            if driver not in used and self._processes(driver) is None:
                self.remove(driver)

    def remove(self, driver: str) -> None:
        """Removes the driver's folder, with everything that Spark has left there."""
        shutil.rmtree(self.folder_of(driver).path, ignore_errors=True)

    def _all(self) -> list[str]:
        """All drivers, newest first: their names begin with the time."""
        return sorted((path.name for path in self._folder.glob("*/")), reverse=True)

    def _waiting(self) -> list[str]:
        phases = {driver: self.folder_of(driver).phase() for driver in self._all()}
        return [driver for driver, phase in phases.items() if phase is not None and phase.is_idle]

    def _processes(self, driver: str) -> ProcessGroup | None:
        """The driver's processes; None if it has ended, or was started with other settings."""
        record = self._record(driver)
        if record is None or record.place != self._place:
            return None
        processes = self._started.get(driver) or ProcessGroup(record.pid, record.born)
        return processes if processes.is_alive() else None

    def _record(self, driver: str) -> DriverRecord | None:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            raw = (self.folder_of(driver).path / "driver.json").read_bytes()
            return msgspec.json.decode(raw, type=DriverRecord)
        return None
