"""Holds a service to its own OpenAPI document, by requests that schemathesis generates from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
from hypothesis import HealthCheck
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks

from tests.effort import effort

load_all_checks()


def operations_of(document: Any) -> dict[str, Any]:
    """Every documented operation, by `METHOD /path`."""
    return {found.ok().label: found.ok() for found in document.get_all_operations()}


def ask(operation: Any, mode: GenerationMode, judge: Callable[[Any], object], *, examples: int) -> None:
    """Passes generated cases to `judge`, the same in each run."""

    def one(case: Any) -> None:
        judge(case)

    settings = hypothesis.settings(
        max_examples=effort(examples),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    with_cases: Any = hypothesis.given(operation.as_strategy(generation_mode=mode))
    settings(with_cases(one))()
