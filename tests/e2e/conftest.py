"""Fixtures of the end-to-end tests: local stacks on the test session's servers, and the real log."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.stack.jars import fetch_jars
from tests.e2e.stack import Stacks, stack_in

NASA = Path(__file__).parents[3] / "shared" / "data" / "nasa_19950801.tsv.gz"
"""Beside the checkout; it is not part of the project."""


@pytest.fixture
def stacks(tmp_path: Path, kafka: str, zookeeper: str, namespace: str) -> Stacks:
    """Makes a local stack with so many streams; starting and stopping it is the test's."""
    fetch_jars("spark", quiet=True)
    return lambda streams: stack_in(tmp_path, kafka, zookeeper, namespace, streams)


@pytest.fixture
def nasa_log() -> Path:
    """The real log of a web server; a test that asks for it is skipped where it is not there."""
    if not NASA.exists():
        pytest.skip(f"the real web log is not there: {NASA.name} belongs into {NASA.parent}")
    return NASA
