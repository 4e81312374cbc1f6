"""The examples in the docstrings of the client commands hold."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = (
    "cli.backoff",
    "cli.commands.events",
    "cli.commands.jobs",
    "cli.commands.operations",
    "cli.output",
    "cli.rejects.listing",
    "cli.rejects.replay",
    "cli.commands.show",
    "cli.sse",
    "cli.importing.delivery",
    "cli.importing.fragments",
    "cli.importing.times",
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    """Each has at least one example, and each example prints what it says."""
    result = doctest.testmod(importlib.import_module(name))

    assert result.attempted > 0
    assert result.failed == 0
