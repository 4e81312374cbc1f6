"""The frame of a service process: settings, logging, signals, and exit code.

A service's `__main__.py` only calls `main`. The first SIGTERM or SIGINT sets `stop`, and the service shuts
down in its own order; a second one ends the process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import uvloop

from shared.errors import BatonError, SettingsInvalid
from shared.service.arguments import parse_arguments
from shared.service.known_settings import misspelt
from shared.service.service_settings import ServiceSettings
from shared.service.settings import describe, load

S = TypeVar("S", bound=ServiceSettings)
# uvicorn repeats its message with terminal codes in `color_message`
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {
    *("message", "asctime", "taskName", "color_message")
}


class JsonLines(logging.Formatter):
    """One JSON object per line: time (UTC), level, logger, message, and the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON; values that JSON cannot hold become their `repr`."""
        line: dict[str, Any] = {
            "at": f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=repr).decode()


def main(name: str, settings_class: type[S], serve: Callable[[S, asyncio.Event], Awaitable[None]]) -> int:
    """Runs `serve(settings, stop)` until it returns, and returns the exit code.

    0 after an orderly stop, 1 after a failure, 2 for invalid settings (each fault goes to standard error).
    Unknown arguments exit with 2, `--help` with 0.
    """
    arguments = parse_arguments(name, settings_class, sys.argv[1:])
    try:
        settings = load(settings_class, os.environ)
    except SettingsInvalid as error:
        for fault in error.faults:
            print(f"{name}: {fault}", file=sys.stderr)
        return 2
    unknown = misspelt(os.environ)
    if arguments.print_config:
        for sentence in unknown:
            print(f"{name}: {sentence}", file=sys.stderr)
        for row in describe(settings):
            print(f"{row.variable}={row.value}")
        return 0
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
    # their warnings matter, their chatter about every reconnection does not
    for noisy in ("aiokafka", "aiozk", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLogger().level))
    for remark in settings.remarks():
        logging.getLogger(name).warning("settings remark", extra={"why": remark})
    for sentence in unknown:
        logging.getLogger(name).warning("unknown setting", extra={"why": sentence})
    _raise_limit_of_open_files()
    code = 0
    try:
        uvloop.run(_run(settings, serve))
    except* BatonError as group:
        first = _first(group)
        logging.getLogger(name).error("failed", extra={"why": first.detail}, exc_info=True)
        print(f"{name}: {first.detail}", file=sys.stderr)
        code = 1
    except* Exception:
        logging.getLogger(name).exception("crashed")
        code = 1
    return code


def tune_garbage_collection() -> None:
    """For a service with many small requests; call it once everything is imported and wired."""
    # imported modules stay: scanning them again in every full collection costs 10 % of a request
    gc.collect()
    gc.freeze()
    # requests create no reference cycles: searching those in flight for cycles costs 5 % of a request
    gc.set_threshold(20_000, 20, 20)


def _raise_limit_of_open_files() -> None:
    """Raises the soft limit to the hard one: the usual 1,024 exists for programs that call `select`."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS has a lower bound of its own when the hard limit is infinite
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _first(group: BaseExceptionGroup[BatonError]) -> BatonError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def _run(settings: S, serve: Callable[[S, asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    is_stopping = False

    def on_signal(number: int, _: object) -> None:
        # not a handler of the event loop: a busy or blocked loop would never see the second signal
        nonlocal is_stopping
        if is_stopping:
            _log_signal("second signal, exiting at once", number)
            os._exit(128 + number)
        is_stopping = True
        _log_signal("stopping in order; a second signal exits at once", number)
        # wakes up the loop, which may be waiting in `select`
        loop.call_soon_threadsafe(stop.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    await serve(settings, stop)


def _log_signal(message: str, number: int) -> None:
    """Writes a log line without the buffers and locks that the signal may have interrupted."""
    record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, message, None, None)
    record.signal = signal.Signals(number).name
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), f"{JsonLines().format(record)}\n".encode())
