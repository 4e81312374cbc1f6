"""`baton up`: runs the local stack in the foreground until Ctrl-C, or with --detach in the background."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from cli.stack.faults import NotReady
from cli.stack.identity import identify
from cli.stack.local import LocalStack, prepare
from cli.stack.options import StackOptions, ports_of
from cli.stack.probes import check_ports
from cli.stack.servers import LOOPBACK
from cli.stack.state import load_state, lock_home
from cli.stack.supervisor import last_line
from cli.terminal.options import home_option, option, port_offset_option

DETACH_TIMEOUT_S = 300.0


@click.command()
@home_option
@port_offset_option
@option("--consumers", "BATON_CONSUMERS", 3, "Number of consumers.")
@option("--streams", "BATON_STREAMS", 24, "Number of streams, fixed when the stack first starts.")
@option("--namespace", "BATON_NAMESPACE", "", "Prefix of all names in Kafka and ZooKeeper.")
@click.option("--detach", is_flag=True, help="Return when the stack is ready, and leave it running.")
def up(home: Path, port_offset: int, consumers: int, streams: int, namespace: str, detach: bool) -> None:
    """Start ZooKeeper, Kafka, a producer, consumers and control, and keep them running.

    The data in the home survives a restart. Ctrl-C stops everything in order.
    """
    options = StackOptions(
        home=home.absolute(),
        port_offset=port_offset,
        consumers=consumers,
        streams=streams,
        namespace=namespace,
    )
    options.check()
    # here, so that errors show up before anything starts or goes to the background
    with lock_home(options.home):
        prepare(options)
        check_ports(LOOPBACK, ports_of(options))
    if detach:
        _detach(options)
    else:
        asyncio.run(_run(options, Console(highlight=False)))


async def _run(options: StackOptions, console: Console) -> None:
    stopping = False
    loop = asyncio.get_running_loop()
    serving = asyncio.create_task(_serve(options, console), name="the local stack")

    def on_signal() -> None:
        nonlocal stopping
        if stopping:
            # the processes die with this one (cli/stack/leash.py)
            os._exit(130)
        stopping = True
        console.print("stopping in order; press Ctrl-C again to stop at once")
        serving.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)
    with contextlib.suppress(asyncio.CancelledError):
        await serving


async def _serve(options: StackOptions, console: Console) -> None:
    def report(name: str, change: str) -> None:
        console.print(f"{time.strftime('%H:%M:%S')} {name} {change}")

    async with LocalStack(options, report):
        console.print(_summary(options))
        console.print("Ctrl-C stops everything")
        # until a signal cancels this task
        await asyncio.Event().wait()


def _summary(options: StackOptions) -> Table:
    table = Table("", "address", box=None)
    addresses = {
        "control": options.control_url,
        "producer": options.producer_url,
        "Kafka": options.kafka_address,
        "ZooKeeper": options.zookeeper_address,
        "logs": str(options.home / "logs"),
    }
    for row in addresses.items():
        table.add_row(*row)
    return table


def _detach(options: StackOptions) -> None:
    log = options.home / "logs" / "stack.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    argv = [
        *(sys.executable, "-m", "cli.main", "up", "--home", str(options.home)),
        *("--port-offset", str(options.port_offset), "--consumers", str(options.consumers)),
        *("--streams", str(options.streams), "--namespace", options.namespace),
    ]
    with log.open("wb") as file:
        # in another session, because it must outlive this terminal
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    # the state may still be that of an earlier stack, so the pid alone would not do
    supervisor = identify(child.pid)
    deadline = time.monotonic() + DETACH_TIMEOUT_S
    try:
        # ready, or dead, whichever comes first
        while child.poll() is None and time.monotonic() < deadline:
            state = load_state(options.home)
            if state is not None and state.ready and state.supervisor == supervisor:
                Console(highlight=False).print(_summary(options))
                return
            time.sleep(0.1)
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        raise
    if child.poll() is None:
        child.terminate()
        child.wait()
    # the child has already explained itself; its sentence is the last line of its log
    raise NotReady(last_line(log.read_bytes()).removeprefix("baton: ") or f"no output in {log}")
