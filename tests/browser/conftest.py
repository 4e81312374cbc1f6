"""Fixtures of the console's tests: a running Baton with open sessions, and a Chromium that looks at it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agent.tests import chromium
from agent.tests.chromium import Browser, find_programs
from bench.console import control
from cli.stack.jars.lock import jar_folder
from tests.browser.baton import RunningBaton
from tests.browser.hostile import HOSTILE_WISH, empty_control, hostile_control
from tests.browser.page import Page


@pytest.fixture(scope="package")
def _browser() -> Iterator[Browser]:
    found = find_programs()
    if found is None:
        pytest.skip(
            "there is no Chromium with its driver here (Debian: apt-get install chromium chromium-driver)"
        )
    with chromium.browser(found) as browser:
        yield browser


@pytest.fixture(scope="package")
def baton(
    _browser: Browser, kafka: str, zookeeper: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBaton]:
    """A producer, three members and control, with 12 streams that carry open sessions."""
    home = tmp_path_factory.mktemp("console")
    with RunningBaton(kafka, zookeeper, f"t{uuid.uuid4().hex[:12]}", home).running() as one:
        yield one


def _tab(browser: Browser, url: str) -> Iterator[Page]:
    """A tab of the browser. In the end it must have had no complaint and asked no other host."""
    browser.complaints()
    one = Page(browser, url)
    yield one
    one.check()
    browser.close_tabs()


@pytest.fixture
def page(_browser: Browser, baton: RunningBaton) -> Iterator[Page]:
    """A tab on control."""
    yield from _tab(_browser, baton.url)


@pytest.fixture
def locked_page(_browser: Browser, baton: RunningBaton) -> Iterator[Page]:
    """The same, on a control that demands a token."""
    with baton.locked_control() as url:
        yield from _tab(_browser, url)


@pytest.fixture
def new_page(_browser: Browser, baton: RunningBaton) -> Iterator[Page]:
    """The same, on a control with an empty lake and no run."""
    with baton.control_without_past() as url:
        yield from _tab(_browser, url)


@pytest.fixture
def spark_jars() -> None:
    """Skips the test where Spark's jars are missing."""
    if not jar_folder("spark").is_dir():
        pytest.skip("Spark's jars are not there: baton jars --with spark")


@pytest.fixture(scope="module")
def large() -> Iterator[str]:
    """The URL of control over a simulated cluster of 1,000 streams on 50 members."""
    with control() as (_, port):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def map_page(_browser: Browser, large: str) -> Iterator[Page]:
    """A tab on it, with the same demands as on any other page."""
    yield from _tab(_browser, large)


@pytest.fixture
def hostile_page(_browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """A tab on a control in memory with the worst texts and numbers."""
    with hostile_control(tmp_path) as url:
        httpx.post(f"{url}/operations", json=HOSTILE_WISH, timeout=60).raise_for_status()
        yield from _tab(_browser, url)


@pytest.fixture
def empty_page(_browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """A tab on a control in memory that has nothing to show."""
    with empty_control(tmp_path) as url:
        yield from _tab(_browser, url)
