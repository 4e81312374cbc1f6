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

from cli.stack.faults import NotReady
from cli.stack.local.stack import LocalStack, prepare
from cli.stack.local.summary import summary_of
from cli.stack.options import StackOptions, ports_of
from cli.stack.processes.identity import identify
from cli.stack.processes.probes import check_ports
from cli.stack.processes.state import load_state, lock_home
from cli.stack.processes.supervisor import last_line
from cli.stack.secured.locks import is_secured
from cli.stack.servers.servers import LOOPBACK
from cli.terminal.escaping import echo
from cli.terminal.interrupts import INTERRUPTED, interruptible, say_interrupted
from cli.terminal.options import home_option, option, port_offset_option, secure_option
from cli.terminal.output import time_text

DETACH_TIMEOUT_S = 300.0


@click.command()
@home_option
@port_offset_option
@option("--consumers", "BATON_CONSUMERS", 3, "Number of consumers.")
@option("--streams", "BATON_STREAMS", 24, "Number of streams, fixed when the stack first starts.")
@option("--namespace", "BATON_NAMESPACE", "", "Prefix of all names in Kafka and ZooKeeper.")
@option("--spark-workers", "BATON_SPARK_WORKERS", 0, "Workers of a Spark cluster for the jobs; 0: none.")
@secure_option
@click.option(
    "--control-tokens",
    envvar="BATON_CONTROL_TOKENS_FILE",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the tokens of control's callers; without one, control serves everybody on this machine.",
)
@click.option("--detach", is_flag=True, help="Return when the stack is ready, and leave it running.")
def up(
    home: Path,
    port_offset: int,
    consumers: int,
    streams: int,
    namespace: str,
    spark_workers: int,
    secure: bool,
    control_tokens: Path | None,
    detach: bool,
) -> None:
    """Start ZooKeeper, Kafka, a producer, consumers and control, and keep them running.

    The data in the home survives a restart. Ctrl-C stops everything in order, with exit code 130.
    """
    options = StackOptions(
        home=home.absolute(),
        port_offset=port_offset,
        consumers=consumers,
        streams=streams,
        namespace=namespace,
        spark_workers=spark_workers,
        # what is locked stays so: services without the passwords could not use the data
        secure=secure or is_secured(home),
        control_tokens=control_tokens,
    )
    options.check()
    # here, so that errors show up before anything starts or goes to the background
    with interruptible(lambda: "nothing was started"), lock_home(options.home):
        prepare(options)
        check_ports(LOOPBACK, ports_of(options))
    if detach:
        _detach(options)
    elif asyncio.run(_run(options)) == signal.SIGINT:
        kept = f"its data stay in {options.home}, and `baton up --home {options.home}` continues with them"
        say_interrupted(f"the stack has stopped; {kept}")
        sys.exit(INTERRUPTED)


async def _run(options: StackOptions) -> int:
    """Runs the stack until a signal, whose number it returns."""
    received = 0
    loop = asyncio.get_running_loop()
    serving = asyncio.create_task(_serve(options), name="the local stack")

    def on_signal(number: int) -> None:
        nonlocal received
        if received:
            # the processes die with this one (cli/stack/processes/leash.py)
            os._exit(INTERRUPTED)
        received = number
        echo("stopping in order; press Ctrl-C again to stop at once")
        serving.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal, number)
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    return received


async def _serve(options: StackOptions) -> None:
    def report(name: str, change: str) -> None:
        echo(f"{time_text(time.time_ns() // 1_000_000)} {name} {change}")

    async with LocalStack(options, report):
        echo(summary_of(options))
        echo("Ctrl-C stops everything")
        # until a signal cancels this task
        await asyncio.Event().wait()


def _detach(options: StackOptions) -> None:
    log = options.home / "logs" / "stack.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    argv = [
        *(sys.executable, "-m", "cli.main", "up", "--home", str(options.home)),
        *("--port-offset", str(options.port_offset), "--consumers", str(options.consumers)),
        *("--streams", str(options.streams), "--namespace", options.namespace),
        *("--spark-workers", str(options.spark_workers)),
        *(["--secure"] if options.secure else []),
        *(["--control-tokens", str(options.control_tokens)] if options.control_tokens else []),
    ]
    with log.open("wb") as file:
        # in another session, because it must outlive this terminal
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    down = f"the stack may still be stopping; `baton down --home {options.home}` ends it"
    with interruptible(lambda: down if child.poll() is None else "the stack has stopped again"):
        is_ready = _wait_until_ready(child, options.home)
    if is_ready:
        echo(summary_of(options))
        return
    # the child has already explained itself; its sentence is the last line of its log
    raise NotReady(last_line(log.read_bytes()).removeprefix("baton: ") or f"no output in {log}")


def _wait_until_ready(child: subprocess.Popen[bytes], home: Path) -> bool:
    """Whether the stack became ready; otherwise, and after Ctrl-C, the child has ended."""
    # the state may still be that of an earlier stack, so the pid alone would not do
    supervisor = identify(child.pid)
    deadline = time.monotonic() + DETACH_TIMEOUT_S
    try:
        # ready, or dead, whichever comes first
        while child.poll() is None and time.monotonic() < deadline:
            state = load_state(home)
            if state is not None and state.ready and state.supervisor == supervisor:
                return True
            time.sleep(0.1)
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        raise
    if child.poll() is None:
        child.terminate()
        child.wait()
    return False
