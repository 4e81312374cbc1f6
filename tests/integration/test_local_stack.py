"""The real local stack: restarted consumers, kept data, and no process left behind."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cli.stack.faults import PortOccupied
from cli.stack.local.stack import LocalStack
from cli.stack.options import StackOptions
from cli.stack.processes.identity import Identity, is_alive
from cli.stack.processes.probes import is_ready
from cli.stack.processes.state import load_state
from cli.terminal.exit_codes import ExitCode
from shared.kafka.admin.topics import list_topics
from tests.servers import free_port_offset


async def test_consumers_restart_join_and_leave(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """A killed consumer restarts, another joins, one leaves, and the stack's end stops all."""
    reports: list[tuple[str, str]] = []
    options = StackOptions(
        home=tmp_path,
        port_offset=free_port_offset(),
        consumers=1,
        streams=4,
        namespace=namespace,
        kafka=kafka,
        zookeeper=zookeeper,
    )

    async with LocalStack(options, lambda name, change: reports.append((name, change))) as stack:
        first = stack.consumer(0).identity
        await stack.kill_consumer(0)
        await stack.wait_consumer(0)
        second = stack.consumer(0).identity
        added = await stack.add_consumer()
        both = stack.consumers
        await stack.stop_consumer(0)
        running = identities(tmp_path)

        assert first != second
        assert (added, both, stack.consumers) == (1, [0, 1], [1])
        assert len(running) == 4
        assert all(map(is_alive, running))

    assert not any(map(is_alive, running))
    assert ("consumer-0", "died (SIGKILL), starts again in 0.5 s") in reports
    assert not any("is killed" in change for _, change in reports)


async def test_an_occupied_port_starts_nothing(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """The stack checks all ports before it starts anything, and releases its home afterwards."""
    options = StackOptions(
        home=tmp_path, port_offset=free_port_offset(), namespace=namespace, kafka=kafka, zookeeper=zookeeper
    )
    with _listener(options.producer_port), pytest.raises(PortOccupied, match=str(options.producer_port)):
        async with LocalStack(options):
            pass

    assert load_state(tmp_path) is None
    assert not (tmp_path / "logs").exists()


async def test_down_leaves_the_data_and_no_process(tmp_path: Path) -> None:
    """`baton up --detach` leaves a stack running, `baton down` stops it, and the next start finds its data.

    While it runs, its home rejects a second stack, which must not disturb the state of the first.
    """
    offset = free_port_offset()
    kafka = f"127.0.0.1:{9092 + offset}"
    arguments = ("--home", str(tmp_path), "--port-offset", str(offset), "--consumers", "1", "--streams", "3")
    try:
        started = baton("up", "--detach", *arguments)
        running = identities(tmp_path)
        again = baton("up", *arguments)
        ready = await is_ready("127.0.0.1", 8000 + offset)
        topics = await list_topics(kafka)
        stopped = baton("down", "--home", str(tmp_path))

        assert (started.returncode, started.stderr) == (0, "")
        assert (len(running), ready) == (6, True)
        assert (again.returncode, "already running" in again.stderr) == (ExitCode.REFUSED, True)
        assert stopped.returncode == 0
        assert not any(map(is_alive, running))

        restarted = baton("up", "--detach", *arguments)

        assert (restarted.returncode, restarted.stderr) == (0, "")
        assert "fragments.0002" in topics
        assert set(topics) <= set(await list_topics(kafka))
    finally:
        baton("down", "--home", str(tmp_path))


def identities(home: Path) -> list[Identity]:
    """The processes in the stored state of this home's stack."""
    state = load_state(home)
    assert state is not None
    return [process.identity for process in state.processes if process.identity is not None]


def baton(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "cli.main", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


def _listener(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))
