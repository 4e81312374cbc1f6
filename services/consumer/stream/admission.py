"""Lets a worker fold what its reader returns only if that comes from the log that was read before.

The shell around `core/commits/last_record.py`. A reader begins one record before the position, at every
opening and after every pause, and by itself when it has connected anew. Used by `worker.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from services.consumer.core.commits.stream import Stream
from services.consumer.core.sessions.record import Record
from services.consumer.ports import FragmentReader
from shared.errors import KafkaUnavailable

logger = logging.getLogger(__name__)


async def seek(core: Stream, reader: FragmentReader) -> None:
    """Reads on from the position, or from one record before it, by which the log is recognized."""
    core.last_record.expect()
    await reader.open(core.reads_from)


def admit(core: Stream, records: Sequence[Record]) -> Sequence[Record]:
    """Those of the records that follow the position.

    Raises LogLost or LogChanged if the log is not the one that was read before, KafkaUnavailable if the
    reader has gone back to its beginning.
    """
    if records and records[0].offset < core.position - 1:
        raise KafkaUnavailable(f"the log begins again at {records[0].offset}: {core!r}")
    before = core.last_record.comparison
    new = core.admit(records)
    if before != "gone":
        warn_if_not_compared(core)
    return new


def warn_if_not_compared(core: Stream) -> None:
    """Logs that retention has removed the record by which the log would be recognized."""
    if core.last_record.comparison == "gone":
        logger.warning("log not compared", extra={"stream": core.stream, "position": core.position})
