"""Fixtures of the end-to-end tests: local stacks on the test session's servers, and the real log."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.stack.jars import fetch_jars
from tests.e2e.stack import Stacks, stack_in

NASA = Path(__file__).parents[3] / "shared" / "data" / "nasa_19950801.tsv.gz"
"""Beside the checkout; not part of the repository."""


@pytest.fixture
def stacks(tmp_path: Path, kafka: str, zookeeper: str, namespace: str) -> Stacks:
    """Makes a local stack with that many streams; the test starts and stops it."""
    fetch_jars("spark", quiet=True)
    return lambda streams: stack_in(tmp_path, kafka, zookeeper, namespace, streams)


@pytest.fixture
def nasa_log() -> Path:
    """The real log of a web server; a test that requests it is skipped where the log is missing."""
    if not NASA.exists():
        pytest.skip(f"the real web log is not there: {NASA.name} belongs into {NASA.parent}")
    return NASA
