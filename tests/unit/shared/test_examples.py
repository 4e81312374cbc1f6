"""The examples in docstrings hold."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = [
    "services.consumer.core.lease",
    "services.consumer.wire",
    "shared.backoff",
    "services.control.core.operations",
    "services.producer.core.form",
    "services.producer.keys",
    "services.producer.origins",
    "services.producer.tallies",
    "shared.balance",
    "shared.cluster",
    "shared.events",
    "shared.fragments",
    "shared.json_faults",
    "shared.names",
    "shared.rejects",
    "shared.routing",
    "shared.sessions",
    "shared.signing",
    "shared.stream_table",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_hold(name: str) -> None:
    """An example that does not run misleads."""
    result = doctest.testmod(importlib.import_module(name))

    assert result.attempted
    assert not result.failed
