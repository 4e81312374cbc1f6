"""`baton mirror config | run | check | take-over`: a second cluster that goes on when the first one is lost.

MirrorMaker copies; these commands configure it, compare both sides, and make a copy fit for Baton. They talk to
Kafka and ZooKeeper directly. docs/mirror.md has the drill.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import click

from cli.kafka.mirror.config import MirrorOptions, mirror_config
from cli.stack.mirror import mirror_argv, with_passwords
from cli.terminal.options import namespace_option, together
from shared.errors import SettingsInvalid
from shared.kafka.access import KafkaAccess, access_from
from shared.model.names import Names


def _parse_address(_: click.Context, __: click.Parameter, bootstrap: str) -> KafkaAccess:
    """The locks are those of the environment, for both sides."""
    access = access_from(os.environ, bootstrap)
    if faults := access.faults():
        raise SettingsInvalid(faults)
    return access




source_option = click.option(
    "--source", required=True, metavar="HOST:PORT", callback=_parse_address, help="Kafka that is copied."
)
target_option = click.option(
    "--target", required=True, metavar="HOST:PORT", callback=_parse_address, help="Kafka with the copy."
)


@click.group("mirror")
def mirror() -> None:
    """Copy fragments and sessions to another cluster, compare both, and take over there."""


@mirror.command("config")
@together(source_option, target_option, namespace_option)
@click.option("--replication", type=click.IntRange(min=1), default=3, help="Of the topics at the target.")
@click.option("--tasks", type=click.IntRange(min=1), default=2, help="Tasks that copy at the same time.")
@click.option(
    "--same-offsets",
    is_flag=True,
    help="Copy without transactions: a group may follow after a take-over, but a crash may copy records twice.",
)
def config(
    source: KafkaAccess,
    target: KafkaAccess,
    names: Names,
    replication: int,
    tasks: int,
    same_offsets: bool,
) -> None:
    """Print the properties with which MirrorMaker copies the topics of a Baton.

    The locks of the environment (BATON_KAFKA_…) count for both sides. Passwords are not printed: the properties
    name variables, which `baton mirror run` sets.
    """
    options = MirrorOptions(
        source=source,
        target=target,
        names=names,
        replication=replication,
        tasks=tasks,
        same_offsets=same_offsets,
    )
    click.echo(mirror_config(options), nl=False)


@mirror.command("run")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--log-level", type=click.Choice(["error", "warn", "info", "debug"]), default="warn", help="Of its log."
)
def run(file: Path, log_level: str) -> NoReturn:
    """Run MirrorMaker with the properties of FILE, until it is stopped.

    It needs `baton jars --with mirror`. Several may run, also on other machines: they share the work.
    """
    access = access_from(os.environ, "")
    argv = mirror_argv(file, access, log_level=log_level)
    # in place of this process: signals and the exit code are MirrorMaker's own
    os.execve(argv[0], argv, with_passwords(os.environ, access))
