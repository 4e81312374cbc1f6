"""Loads the fixtures and options of tests/fixtures.py for the tests in tests/ and in agent/tests/."""

pytest_plugins = ["tests.fixtures"]
