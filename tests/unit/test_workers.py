"""Pytest workers divide the tests so that an expensive server starts as seldom as possible."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workers import ONE_STACK, OWN_KAFKA, ROOT, SECURED_KAFKA, SPARK, part

PARTS = {"spark": {SPARK}, "secured_kafka": {SPARK, SECURED_KAFKA}, "kafka_server": {OWN_KAFKA}}
"""By fixture: the parts whose tests may request it."""


def part_of(path: Path) -> str:
    return part(path.relative_to(ROOT).as_posix())


def test_one_worker_runs_all_tests_that_share_a_server(request: pytest.FixtureRequest) -> None:
    """Also those that request it through another fixture. Only a whole run looks at every test."""
    strays = [
        item.nodeid
        for item in request.session.items
        for fixture in PARTS.keys() & set(getattr(item, "fixturenames", ()))
        if part_of(item.path) not in PARTS[fixture]
    ]

    assert strays == []


def test_a_file_is_a_part_of_its_own_unless_it_shares() -> None:
    """Its tests share fixtures of the module; a folder's tests, one stack."""
    here = Path(__file__)

    assert part_of(here) == here.relative_to(ROOT).as_posix()
    assert [part(f"{folder}/test_x.py") for folder in ONE_STACK] == list(ONE_STACK)
