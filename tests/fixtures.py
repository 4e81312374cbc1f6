"""Fixtures for every test: real servers, started on first use, one Kafka and one ZooKeeper for all workers.

Tests share the servers and stay apart by `namespace`. A test that stops, pauses or changes a server requests
`kafka_server` or `zookeeper_server`, which no other pytest worker uses, and may leave it in any state: the
fixture repairs it afterwards. If its other fixtures use that server too, its file overrides `kafka` or
`zookeeper`.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.effort import effort
from tests.process_state import process_as_it_was
from tests.servers import KafkaServer, ZooKeeperServer, free_port, temporary_home
from tests.shared_servers import SharedServers, address_of
from tests.workers import Scheduling, rank

if TYPE_CHECKING:
    from tests.secured_kafka import SecuredKafka

assert hypothesis.__version__, (
    "imported before any test: pytest rewriting it at the end of a run, as its plugin does where no test "
    "has used it, meets a fault of CPython 3.11 (AST constructor recursion depth mismatch)"
)
# a busy neighbour is not a failure
hypothesis.settings.register_profile("untimed", deadline=None, max_examples=effort(100))
hypothesis.settings.load_profile("untimed")
SHARED = pytest.StashKey[SharedServers]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--soak` (see `make soak`) runs the long tests too, `--shuffle=N` all of them in another order."""
    parser.addoption("--soak", action="store_true", help="run the tests that are marked as soak")
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="run files, and the tests in each, in this order"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declares the mark of long tests. Ctrl-C works in every test, also where a shell runs them in the
    background and lets them ignore it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "soak: takes long; only run with --soak")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects long tests unless `--soak` is given, and gives several workers the longest files first."""
    if not config.getoption("--soak"):
        long = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    if (seed := config.getoption("--shuffle")) is not None:
        drawn = random.Random(seed)
        drawn.shuffle(items)
        places = {item.path: drawn.random() for item in sorted(items, key=lambda item: item.nodeid)}
        items.sort(key=lambda item: places[item.path])
    elif "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=rank)


def pytest_collection_finish() -> None:
    """The collector of garbage need not look at ten thousand tests again and again."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Divides the tests among several workers."""
    return Scheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a worker where to ask for the servers that all share."""
    if (shared := node.config.stash.get(SHARED, None)) is None:
        shared = node.config.stash[SHARED] = SharedServers()
        node.config.add_cleanup(shared.close)
    node.workerinput["servers"] = shared.door


@pytest.fixture(autouse=True)
def _process_as_it_was() -> Iterator[None]:
    """No test leaves its process other than it found it."""
    with process_as_it_was():
        yield


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
    """This worker's broker, for tests that pause or restart it."""
    yield _kafka
    _kafka.settle()


@pytest.fixture
def zookeeper_server(_zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperServer]:
    """This worker's ZooKeeper, for tests that pause or restart it."""
    yield _zookeeper
    _zookeeper.resume()
    _zookeeper.start()


@pytest.fixture(scope="session")
def secured_kafka() -> Iterator[SecuredKafka]:
    """This worker's broker that demands TLS, a principal and rights."""
    from tests.secured_kafka import SecuredKafka  # with what few tests need

    with temporary_home("secured-kafka") as home:
        server = SecuredKafka(home)
        server.start()
        yield server
        server.kill()


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> str:
    """The address of a real broker, `127.0.0.1:port`."""
    if (door := _door(request)) is None:
        return str(request.getfixturevalue("_kafka").address)
    return address_of(KafkaServer, door, free_port(), free_port())


@pytest.fixture(scope="session")
def zookeeper(request: pytest.FixtureRequest) -> str:
    """The address of a real ZooKeeper, `127.0.0.1:port`."""
    if (door := _door(request)) is None:
        return str(request.getfixturevalue("_zookeeper").address)
    return address_of(ZooKeeperServer, door, free_port())


def _door(request: pytest.FixtureRequest) -> str | None:
    """Where this worker asks for shared servers; None in a run without workers."""
    return getattr(request.config, "workerinput", {}).get("servers")


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test uses (see `shared/model/names.py`)."""
    return f"t{uuid.uuid4().hex[:12]}"
