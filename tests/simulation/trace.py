"""What happened in a run, in virtual time: cheap to write down, readable when a seed fails."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shared.zookeeper.znodes import Check, Create, Delete, Operation, Set
from tests.fakes.virtual_time import PROCESS, VirtualLoop

PRODUCT = ("services", "shared")
_OF_EVERY_RECORD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "taskName"}


class Trace:
    """Entries (virtual seconds, who, what, details), in the order in which they happened."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.entries: list[tuple[float, str, str, tuple[Any, ...]]] = []
        self._loop = loop

    def note(self, who: str, what: str, *details: Any) -> None:
        """One thing that happened now."""
        self.entries.append((self._loop.now_s, who, what, details))

    def note_write(self, who: str, operations: Sequence[Operation], done: bool) -> None:
        """A write that reached ZooKeeper."""
        self.entries.append((self._loop.now_s, who, "writes" if done else "is refused", tuple(operations)))

    def lines(self) -> Iterator[str]:
        """One line an entry, for a person."""
        for now_s, who, what, details in self.entries:
            said = ", ".join(_in_words(detail) for detail in details)
            yield f"{now_s:9.4f}  {who or '-':4}  {what:20}  {said}".rstrip()

    def digest(self) -> str:
        """Of all lines: equal only for equal runs."""
        return hashlib.sha256("\n".join(self.lines()).encode()).hexdigest()


class Listener(logging.Handler):
    """Writes down what the product's code logs, in the words of its log."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        extra = {name: value for name, value in record.__dict__.items() if name not in _OF_EVERY_RECORD}
        self._trace.note(
            PROCESS.get(), "  says", record.getMessage(), *(f"{k}={v}" for k, v in extra.items())
        )


@contextmanager
def heard(trace: Trace, listen: bool) -> Iterator[None]:
    """Sends the product's logs into the trace, or nowhere."""
    listener, loggers = Listener(trace), [logging.getLogger(name) for name in PRODUCT]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.propagate = False
        logger.setLevel(logging.INFO if listen else logging.CRITICAL + 1)
        logger.addHandler(listener)
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(listener)
            logger.setLevel(level)
            logger.propagate = propagate


def _in_words(detail: Any) -> str:
    match detail:
        case Create(path, data, _):
            return f"create {_short(path)} {data.decode()}"
        case Set(path, data, version):
            return f"set {_short(path)} {data.decode()} at version {version}"
        case Check(path, version):
            return f"check {_short(path)} at version {version}"
        case Delete(path, version):
            return f"delete {_short(path)} at version {version}"
    return f"{detail:.3f}" if isinstance(detail, float) else str(detail)


def _short(path: str) -> str:
    return "/".join(path.split("/")[-2:])
