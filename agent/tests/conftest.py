"""Fixtures of the browser tests: one Chromium and one pipeline for all tests, a site for each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from agent.tests import chromium
from agent.tests.chromium import Browser, Programs, find_programs
from agent.tests.pipeline import Pipeline
from agent.tests.site import Site


@pytest.fixture(scope="session")
def programs() -> Programs:
    """Chromium and its driver; skips the test without them."""
    found = find_programs()
    if found is None:
        pytest.skip(
            "there is no Chromium with its driver here (Debian: apt-get install chromium chromium-driver)"
        )
    return found


@pytest.fixture(scope="package")
def _browser(programs: Programs) -> Iterator[Browser]:
    with chromium.browser(programs) as browser:
        yield browser


@pytest.fixture
def browser(_browser: Browser) -> Iterator[Browser]:
    """The browser, without tabs of other tests."""
    _browser.complaints()
    yield _browser
    _browser.online()
    _browser.close_tabs()


@pytest.fixture(scope="package")
def pipeline(
    programs: Programs, kafka: str, zookeeper: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pipeline]:
    """A producer and a consumer."""
    home = tmp_path_factory.mktemp("pipeline")
    with Pipeline(kafka, zookeeper, f"t{uuid.uuid4().hex[:12]}", home).running() as one:
        yield one


@pytest.fixture
def site(pipeline: Pipeline) -> Iterator[Site]:
    """A web site in front of the producer, with its own origin and hence its own storage."""
    with Site(pipeline.url).running() as one:
        yield one


@pytest.fixture
def key() -> str:
    """A visitor key for this test."""
    return f"visitor-{uuid.uuid4().hex[:12]}"
