"""The bound on open connections, and a reserve beyond it that answers probes.

Orchestrators kill a process whose `/livez` is refused, and that would turn too many clients into a restart.
So each listener has RESERVE connections beyond the bound. Such a connection gets one answer: the usual one if
the request only looks at the producer (WATCHING), else a 503. A new connection displaces the oldest, so
clients that stay connected cannot occupy the reserve. Made by `__main__.py`, used by connection.py.
"""

from __future__ import annotations

import logging
import resource
import sys
from collections.abc import Callable, Hashable

WATCHING = frozenset({"/livez", "/readyz", "/metrics", "/status"})
"""The paths that are answered beyond the bound."""
OTHER_FILES = 100
"""Open files that connections leave to the rest of the process, e.g. to reconnect to Kafka."""
RESERVE = 100
"""So many newer connections displace one that still waits for its answer: 10,000 a second do after 10 ms."""
logger = logging.getLogger(__name__)


class Connections:
    """The number of open connections that all listeners share, at most `most`; the reserve is not counted."""

    def __init__(self, most: int = sys.maxsize) -> None:
        self.most = most
        self.count = 0

    def __repr__(self) -> str:
        return f"<Connections: {self.count} of {self.most}>"

    def admit(self) -> bool:
        """Counts a new connection; False, and counts nothing, if it would be one too many."""
        if self.count >= self.most:
            return False
        self.count += 1
        return True

    def release(self) -> None:
        """Removes an admitted connection; call it once."""
        self.count -= 1


class Reserve:
    """The connections of one listener beyond the bound, the oldest first, each with what cuts it off."""

    def __init__(self) -> None:
        self._open: dict[Hashable, Callable[[], None]] = {}

    def __repr__(self) -> str:
        return f"<Reserve: {len(self._open)} of {RESERVE} connections>"

    def add(self, connection: Hashable, cut_off: Callable[[], None]) -> None:
        """Adds a connection; the oldest one makes room for it."""
        if len(self._open) >= RESERVE:
            self._open.pop(next(iter(self._open)))()
        self._open[connection] = cut_off

    def discard(self, connection: Hashable) -> None:
        """Removes a connection, if it is still here."""
        self._open.pop(connection, None)


def possible_connections(configured: int, listeners: int) -> int:
    """The configured number, or what the limit of open files allows besides the reserve of each listener."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    left = files - OTHER_FILES - RESERVE * listeners
    possible = configured if files == resource.RLIM_INFINITY else max(1, left)
    if possible < configured:
        fields = {"possible": possible, "configured": configured, "open_files": files}
        logger.info("fewer connections than configured", extra=fields)
    return min(configured, possible)
