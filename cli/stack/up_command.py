"""`baton up`: the local stack in the foreground until Ctrl-C, or with --detach in the background."""

from __future__ import annotations

import asyncio
import contextlib
import logging
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

DETACH_TIMEOUT_S = 300.0


@click.command()
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    envvar="BATON_HOME",
    default=Path(".baton"),
    show_default=True,
    help="Folder of the data, logs and pids.",
)
@click.option(
    "--port-offset", envvar="BATON_PORT_OFFSET", default=0, show_default=True, help="Added to every port."
)
@click.option(
    "--consumers", envvar="BATON_CONSUMERS", default=3, show_default=True, help="How many consumers to start."
)
@click.option(
    "--streams",
    envvar="BATON_STREAMS",
    default=24,
    show_default=True,
    help="Streams of a new stack.",
)
@click.option("--namespace", envvar="BATON_NAMESPACE", default="", help="Prefix of every name in the stack.")
@click.option("--detach", is_flag=True, help="Return when the stack is ready and leave it running.")
def up(home: Path, port_offset: int, consumers: int, streams: int, namespace: str, detach: bool) -> None:
    """Start ZooKeeper, Kafka, producer, consumers and control, and keep them running.

    The data in the home survive a restart. Ctrl-C stops everything in order.
    """
    options = StackOptions(
        home=home.absolute(),
        port_offset=port_offset,
        consumers=consumers,
        streams=streams,
        namespace=namespace,
    )
    options.check()
    # before anything is started or goes to the background, so that the refusals are told right here
    with lock_home(options.home):
        prepare(options)
        check_ports(LOOPBACK, ports_of(options))
    if detach:
        _detach(options)
    else:
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        asyncio.run(_run(options, Console(highlight=False)))


async def _run(options: StackOptions, console: Console) -> None:
    stopping = False
    loop = asyncio.get_running_loop()
    serving = asyncio.create_task(_serve(options, console), name="the local stack")

    def on_signal() -> None:
        nonlocal stopping
        if stopping:
            # the processes are on a leash: they end with this one
            os._exit(130)
        stopping = True
        console.print("stopping in order; once more to stop at once")
        serving.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)
    with contextlib.suppress(asyncio.CancelledError):
        await serving


async def _serve(options: StackOptions, console: Console) -> None:
    def tell(name: str, what: str) -> None:
        console.print(f"{time.strftime('%H:%M:%S')} {name} {what}")

    async with LocalStack(options, tell):
        console.print(_summary(options))
        console.print("Ctrl-C stops everything")
        await asyncio.Event().wait()


def _summary(options: StackOptions) -> Table:
    table = Table("", "address", box=None)
    table.add_row("control", f"http://{LOOPBACK}:{options.control_port}")
    table.add_row("producer", f"http://{LOOPBACK}:{options.producer_port}")
    table.add_row("Kafka", options.kafka_address)
    table.add_row("ZooKeeper", options.zookeeper_address)
    table.add_row("logs", str(options.home / "logs"))
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
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    me = identify(child.pid)
    deadline = time.monotonic() + DETACH_TIMEOUT_S
    try:
        while child.poll() is None and time.monotonic() < deadline:
            state = load_state(options.home)
            if state is not None and state.ready and state.supervisor == me:
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
    words = log.read_text(errors="replace").strip().splitlines() or ["it says nothing"]
    raise NotReady(words[-1].removeprefix("baton: "))
