"""`python -m <module>` with one addition: on SIGUSR1 it prints where each task waits.

A process that does not end shows by this what it is waiting for.
"""

from __future__ import annotations

import asyncio
import runpy
import signal
import sys


def print_tasks(*_: object) -> None:
    """Prints the stack of every task of the running loop."""
    for task in asyncio.all_tasks(asyncio.get_running_loop()):
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, print_tasks)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
