"""Holds a transaction of Delta right before it commits, so that a test can let another writer commit first.

By an observer of Delta's own, which its tests use for the same purpose.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from services.control.spark.delta import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DELTA: Final = "org.apache.spark.sql.delta"
POLL_S: Final = 0.05


class HeldCommit:
    """Holds one transaction of the thread that calls `hold_next`."""

    def __init__(self, spark: SparkSession) -> None:
        self._observers = java_class(spark, f"{_DELTA}.TransactionExecutionObserver")
        self._phases = java_class(spark, f"{_DELTA}.fuzzer.OptimisticTransactionPhases").forName("held")
        observer = java_class(spark, f"{_DELTA}.fuzzer.PhaseLockingTransactionExecutionObserver")
        self._observer = observer(self._phases)
        self._is_used = False
        phases = self._phases
        for phase in (phases.initialPhase(), phases.commitPhase(), phases.backfillPhase()):
            phase.entryBarrier().unblock()
        phases.postCommitPhase().entryBarrier().unblock()
        phases.postCommitPhase().exitBarrier().unblock()

    def __repr__(self) -> str:
        return f"<HeldCommit, reached: {self.is_reached}>"

    def hold_next(self) -> None:
        """Holds this thread's next transaction; only the first call does."""
        if not self._is_used:
            self._is_used = True
            self._observer.setNextObserver(self._observers.getObserver(), True)
            self._observers.setObserver(self._observer)

    @property
    def is_reached(self) -> bool:
        """Whether the transaction has read, and written its files."""
        return bool(self._phases.preparePhase().hasReached())

    @contextlib.contextmanager
    def reached(self, work: Future[Any]) -> Iterator[None]:
        """Waits until the work reaches it, and lets it commit after the block. Raises what the work does."""
        try:
            while not self.is_reached:
                if work.done():
                    work.result()
                    raise AssertionError("no transaction was held")
                time.sleep(POLL_S)
            yield
        finally:
            self._phases.preparePhase().entryBarrier().unblock()
