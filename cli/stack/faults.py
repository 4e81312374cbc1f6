"""The errors of the local stack, each with one sentence for a person.

The other files of `cli/stack` raise them; `cli/main.py` prints them and chooses the exit code.
"""

from __future__ import annotations

from shared.errors import Conflict, InvalidInput, Unavailable


class JavaMissing(InvalidInput):
    """Baton needs Java 17 or newer: install it, or set JAVA_HOME."""


class LockMalformed(InvalidInput):
    """The lock file of jars is malformed."""


class JarsUnavailable(Unavailable):
    """Some jars of the lock file could not be downloaded."""


class PortOccupied(Conflict):
    """A port that the local stack needs is in use."""


class AlreadyRunning(Conflict):
    """A local stack is already running in this home."""


class HomeUnusable(InvalidInput):
    """The home of the local stack cannot be made or written to."""


class NotReady(Unavailable):
    """A process of the local stack did not become ready in time."""
