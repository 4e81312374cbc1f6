"""Undoes what a test does to its process, so that tests pass in any order and in any split among workers.

Tests call the services' own set-up of logging, signals and collections, and a library may change any of these
silently. The next test of the same worker would meet it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM, signal.SIGUSR1)
OF_PYTEST = "PYTEST_"
"""Variables that pytest itself renews in the middle of a test."""


@contextlib.contextmanager
def process_as_it_was() -> Iterator[None]:
    """Puts back logging, environment, working directory, signal handlers, event-loop policy, import path and
    thresholds of the garbage collector.
    """
    with _logging(), _environment(), _signals(), _interpreter():
        yield


@contextlib.contextmanager
def _logging() -> Iterator[None]:
    root, manager = logging.getLogger(), logging.root.manager
    before = {logger: _look(logger) for logger in _loggers()}
    formats = [(handler, handler.formatter, handler.level) for handler in root.handlers]
    disabled = manager.disable
    yield
    manager.disable = disabled
    for logger in _loggers():
        # a logger that did not exist yet is one that nobody has set up
        level, propagate, off, handlers = before.get(logger, (logging.NOTSET, True, False, []))
        logger.setLevel(level)
        logger.propagate, logger.disabled, logger.handlers[:] = propagate, off, handlers
    for handler, formatter, level in formats:
        handler.setFormatter(formatter)
        handler.setLevel(level)


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict.values()
    return [logging.getLogger(), *(logger for logger in known if isinstance(logger, logging.Logger))]


def _look(logger: logging.Logger) -> tuple[int, bool, bool, list[logging.Handler]]:
    return logger.level, logger.propagate, logger.disabled, list(logger.handlers)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    folder = os.getcwd()
    before = {name: value for name, value in os.environ.items() if not name.startswith(OF_PYTEST)}
    yield
    for name in [name for name in os.environ if name not in before and not name.startswith(OF_PYTEST)]:
        del os.environ[name]
    os.environ.update(before)
    os.chdir(folder)


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only that one may set handlers
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@contextlib.contextmanager
def _interpreter() -> Iterator[None]:
    policy, path, thresholds = asyncio.get_event_loop_policy(), list(sys.path), gc.get_threshold()
    collects = gc.isenabled()
    yield
    sys.path[:] = path
    gc.set_threshold(*thresholds)
    (gc.enable if collects else gc.disable)()
    if asyncio.get_event_loop_policy() is not policy:
        asyncio.set_event_loop_policy(policy)
