"""The examples in docstrings hold."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = [
    "services.consumer.core.ownership.lease",
    "services.consumer.handover.messages",
    "shared.backoff",
    "services.control.core.operations",
    "services.producer.core.form",
    "services.producer.http.keys",
    "services.producer.http.origins",
    "services.producer.workers.metrics",
    "shared.model.balance",
    "shared.model.cluster",
    "shared.model.events",
    "shared.model.fragments",
    "shared.model.json_faults",
    "shared.model.names",
    "shared.model.rejects",
    "shared.model.routing",
    "shared.model.sessions",
    "shared.service.signing",
    "shared.zookeeper.stream_table",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_hold(name: str) -> None:
    """An example that does not run misleads."""
    result = doctest.testmod(importlib.import_module(name))

    assert result.attempted
    assert not result.failed
