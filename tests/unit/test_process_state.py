"""A test leaves its process as it found it, so the next one may come from any file."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.process_state import process_as_it_was


class OtherPolicy(asyncio.DefaultEventLoopPolicy):
    """Stands for the policy that a library sets."""


def state() -> dict[str, Any]:
    root = logging.getLogger()
    return {
        "logging": (root.level, list(root.handlers), logging.root.manager.disable),
        "formats": [handler.formatter for handler in root.handlers],
        "a logger": (logging.getLogger("tests.kept").level, logging.getLogger("tests.kept").disabled),
        "environment": {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "folder": os.getcwd(),
        "signals": [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)],
        "policy": asyncio.get_event_loop_policy(),
        "path": list(sys.path),
        "collector": (gc.get_threshold(), gc.isenabled()),
    }


def test_what_a_test_changes_of_its_process_is_undone(tmp_path: Path) -> None:
    """Logging and its formats, environment, folder, signals, event-loop policy, import path, collector."""
    before = state()

    with process_as_it_was():
        for handler in logging.getLogger().handlers:
            handler.setFormatter(logging.Formatter("%(name)s"))
        logging.basicConfig(level=logging.CRITICAL, handlers=[logging.NullHandler()], force=True)
        logging.disable(logging.ERROR)
        logging.getLogger("tests.kept").disabled = True
        logging.getLogger("tests.kept").setLevel(logging.ERROR)
        os.environ["BATON_LEFT_BEHIND"] = "1"
        del os.environ["PATH"]
        os.chdir(tmp_path)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        asyncio.set_event_loop_policy(OtherPolicy())
        sys.path.append(str(tmp_path))
        gc.set_threshold(1, 1, 1)
        gc.disable()
        during = state()

    assert {name for name in before if during[name] == before[name]} == set()
    assert state() == before
