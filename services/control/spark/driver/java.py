"""The JVM of a driver: whether it lives, why it has died, and its end.

Used by the driver's program and by `warm_spark.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext

from shared.errors import SparkUnavailable

DYING_S: Final = 1.0
"""How long a JVM that no longer answers may take to end."""


class JavaLost(SparkUnavailable):
    """The JVM, which does Spark's work, has ended in the middle of a run."""


def java_lives() -> bool:
    """Whether this process has started a JVM that still runs."""
    process = _process()
    return process is not None and process.poll() is None


def find_loss(error: Exception) -> JavaLost | None:
    """How the JVM has died, if it has: then that is why `error` was raised."""
    process = _process()
    if process is None:
        return None
    # its connections break before it has ended
    is_silent = isinstance(error, Py4JError | OSError) and not isinstance(error, Py4JJavaError)
    try:
        code = process.wait(DYING_S if is_silent else 0.0)
    except subprocess.TimeoutExpired:
        return None
    how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    why = ", often for lack of memory" if code < 0 else ""
    return JavaLost(f"Spark's Java process {how}{why}")


def end_java() -> None:
    """Kills the JVM instead of waiting for its slow shutdown: everything is committed by now."""
    process = _process()
    if process is None or process.poll() is not None:
        return
    # everything is logged by now, and the remaining threads would only report that the JVM is gone
    sys.stderr.flush()
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)
    process.kill()
    process.wait()


def _process() -> subprocess.Popen[bytes] | None:
    return getattr(SparkContext._gateway, "proc", None)
