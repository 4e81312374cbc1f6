"""`baton doctor`: checks what Baton stands on, and says of each thing that is wrong what to do.

The checks are in `cli/commands/checks`, each of them small; this file lists them. None of them changes
anything. One that could not run says so, and does not count as a fault.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from cli.commands.checks.findings import Finding, checked
from cli.commands.checks.kafka import check_brokers, check_topics
from cli.commands.checks.machine import check_disk, check_java, check_lake
from cli.commands.checks.services import check_control, check_queues
from cli.commands.checks.zookeeper import check_servers, check_znodes
from cli.commands.control import print_list
from cli.stack.processes.state import load_state
from cli.terminal.escaping import echo
from cli.terminal.exit_codes import ExitCode
from cli.terminal.lists import formats_option
from cli.terminal.local_stack import find_home
from cli.terminal.options import home_option, kafka_options, option, url_option
from shared.errors import InvalidInput
from shared.kafka.connect.access import Kafka
from shared.model.names import Names
from shared.zookeeper.access import access_source

MARKS = {"ok": "OK     ", "wrong": "WRONG  ", "unknown": "UNKNOWN"}
ZOOKEEPER = "127.0.0.1:2181"


def _zookeeper() -> str:
    """The local stack's servers, else the default."""
    state = load_state(find_home())
    processes = state.processes if state is not None else []
    return next((one.address for one in processes if one.name == "zookeeper"), ZOOKEEPER)


@click.command("doctor")
@click.option(
    "--zookeeper",
    envvar="BATON_ZOOKEEPER",
    default=_zookeeper,
    show_default=f"the local stack of this folder, else {ZOOKEEPER}",
    show_envvar=True,
    help="Servers of ZooKeeper, `host:port,…`.",
)
@option("--user", "BATON_ZOOKEEPER_USER", "", "Baton's user in ZooKeeper.")
@option("--password-file", "BATON_ZOOKEEPER_PASSWORD_FILE", "", "File with its password.")
@option("--lake", "BATON_LAKE", "", "Folder or URL of the tables; default: `lake` in the home.")
@url_option
@kafka_options
@home_option
@formats_option
def doctor(
    zookeeper: str,
    user: str,
    password_file: str,
    lake: str,
    url: str,
    kafka: Kafka,
    names: Names,
    home: Path,
    output: str,
) -> None:
    """Check ZooKeeper, Kafka and its topics, Baton's services and clocks, Java, disk, and the lake's tables.

    Each line is OK, WRONG with what to do, or UNKNOWN if the check could not run. Nothing is changed. The
    exit code is 1 if something is wrong.
    """
    if bool(user) != bool(password_file):
        raise InvalidInput("set BATON_ZOOKEEPER_USER and BATON_ZOOKEEPER_PASSWORD_FILE, or neither")
    access = access_source(user, password_file)
    folder = lake or str(home / "lake")

    async def examine() -> list[Finding]:
        # one after the other, because each line may explain the next
        return [
            *await checked("zookeeper", check_servers, zookeeper),
            *await checked("znodes", check_znodes, zookeeper, access, names),
            *await checked("kafka", check_brokers, kafka),
            *await checked("topics", check_topics, kafka, names),
            *await checked("control", check_control, url),
            *await checked("queues", check_queues, url),
            *await checked("java", check_java),
            *await checked("disk", check_disk, home),
            *await checked("lake", check_lake, folder, names.namespace),
        ]

    findings = asyncio.run(examine())
    if output == "text":
        for finding in findings:
            echo(line_of(finding))
        echo(summary(findings), err=True)
    else:
        print_list({"findings": [finding._asdict() for finding in findings]}, "findings", output, {})
    if any(finding.state == "wrong" for finding in findings):
        sys.exit(ExitCode.FAILED)


def line_of(finding: Finding) -> str:
    """A finding for people.

    >>> print(line_of(Finding("topic x", "wrong", "cleanup.policy is compact", "repair it")))
    WRONG   topic x: cleanup.policy is compact
            → repair it
    """
    line = f"{MARKS[finding.state]} {finding.about}: {finding.says}"
    return f"{line}\n        → {finding.todo}" if finding.todo else line


def summary(findings: Sequence[Finding]) -> str:
    """How many are what."""
    counts = {state: sum(finding.state == state for finding in findings) for state in MARKS}
    return f"{counts['ok']} ok, {counts['wrong']} wrong, {counts['unknown']} not checked"
