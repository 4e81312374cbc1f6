"""Fixtures for every test: real servers, started when first asked for, once for the whole run.

Tests share the servers and stay apart by `namespace`. A test that stops or pauses a server asks for
`kafka_server` or `zookeeper_server` and leaves it as it likes: it is put right again afterwards.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import hypothesis
import pytest

from tests.servers import KafkaServer, ZooKeeperServer, temporary_home

assert hypothesis.__version__, (
    "imported before any test: pytest rewriting it at the end of a run, as its plugin does where no test "
    "has used it, meets a fault of CPython 3.11 (AST constructor recursion depth mismatch)"
)
hypothesis.settings.register_profile("untimed", deadline=None)  # tests are never timed
hypothesis.settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--soak` (see `make soak`) runs the long tests too."""
    parser.addoption("--soak", action="store_true", help="run the tests that are marked as soak")


def pytest_configure(config: pytest.Config) -> None:
    """Declares the mark of the long tests."""
    config.addinivalue_line("markers", "soak: takes long; only run with --soak")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the long tests out unless asked for."""
    if config.getoption("--soak"):
        return
    left_out = [item for item in items if item.get_closest_marker("soak")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def _kafka() -> Iterator[KafkaServer]:
    with temporary_home("kafka") as home:
        server = KafkaServer(home)
        server.start()
        yield server
        server.kill()


@pytest.fixture(scope="session")
def _zookeeper() -> Iterator[ZooKeeperServer]:
    with temporary_home("zookeeper") as home:
        server = ZooKeeperServer(home)
        server.start()
        yield server
        server.kill()


@pytest.fixture
def kafka_server(_kafka: KafkaServer) -> Iterator[KafkaServer]:
    """The broker of this test run, for tests that pause or restart it."""
    yield _kafka
    _kafka.settle()


@pytest.fixture
def zookeeper_server(_zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperServer]:
    """The ZooKeeper of this test run, for tests that pause or restart it."""
    yield _zookeeper
    _zookeeper.resume()
    _zookeeper.start()


@pytest.fixture(scope="session")
def kafka(_kafka: KafkaServer) -> str:
    """The address of a real broker, `127.0.0.1:port`."""
    return _kafka.address


@pytest.fixture(scope="session")
def zookeeper(_zookeeper: ZooKeeperServer) -> str:
    """The address of a real ZooKeeper, `127.0.0.1:port`."""
    return _zookeeper.address


@pytest.fixture
def namespace() -> str:
    """A namespace of the test's own (see `shared/model/names.py`)."""
    return f"t{uuid.uuid4().hex[:12]}"
