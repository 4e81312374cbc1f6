"""What can keep the local stack from running, each told in one sentence for a person.

Raised by the other files of `cli/stack`, shown by `cli/main.py`, which exits with 1.
"""

from __future__ import annotations

from shared.errors import Conflict, InvalidInput, Unavailable


class JavaMissing(InvalidInput):
    """Baton needs Java 17 or newer: install it, or let JAVA_HOME name it."""


class LockMalformed(InvalidInput):
    """A line of the lock file of jars is not readable."""


class JarsUnavailable(Unavailable):
    """Not every jar of the lock file could be fetched."""


class PortOccupied(Conflict):
    """A port that the local stack needs is in use."""


class AlreadyRunning(Conflict):
    """A local stack is already running in this home."""


class NotReady(Unavailable):
    """A process of the local stack did not become ready in time."""
