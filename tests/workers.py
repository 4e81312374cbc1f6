"""How several pytest workers divide the tests: which files one worker runs together, and which come first.

A worker runs a file as a whole, and files that share an expensive server one after the other, so that this
server starts once.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).parents[1]
SPARK, SECURED_KAFKA, OWN_KAFKA = "Spark", "secured Kafka", "Kafka of its own"
EXPENSIVE = {
    SPARK: re.compile(r"\bspark: SparkSession\b"),
    SECURED_KAFKA: re.compile(r"\bsecured_kafka: SecuredKafka\b"),
    OWN_KAFKA: re.compile(r"\bkafka_server: KafkaServer\b"),
}
"""Session fixtures that take up to half a minute of CPU: Spark until it is warm, a broker with TLS, one that
tests stop. A file that requests two belongs to the first."""
ONE_STACK = ("tests/browser", "agent/tests")
"""Folders whose tests look at one running stack, and share a Chromium."""
LONGEST_FIRST = (
    SPARK,
    *ONE_STACK,
    OWN_KAFKA,
    SECURED_KAFKA,
    "tests/e2e",
    "tests/integration",
    "tests/simulation",
)
"""Begun last, one of these would keep one worker busy alone."""


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives all tests of one `part` to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return part(nodeid.partition("::")[0])


@functools.cache
def part(file: str) -> str:
    """What one worker runs as a whole: the file (relative to the root), or all that share its server."""
    folder = file.rpartition("/")[0]
    if folder in ONE_STACK:
        return folder
    text = (ROOT / file).read_text()
    return next((server for server, request in EXPENSIVE.items() if request.search(text)), file)


def rank(item: pytest.Item) -> int:
    """The place of a test's part in the order, from 0."""
    whole = part(item.path.relative_to(ROOT).as_posix())
    place = whole if whole in LONGEST_FIRST else whole.rpartition("/")[0]
    return LONGEST_FIRST.index(place) if place in LONGEST_FIRST else len(LONGEST_FIRST)
