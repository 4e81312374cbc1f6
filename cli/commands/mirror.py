"""`baton mirror config | run | check | take-over`: a second cluster that goes on when the first one is lost.

MirrorMaker copies; these commands configure it, compare both sides, and make a copy fit for Baton. They talk
to Kafka and ZooKeeper directly. docs/mirror.md has the drill.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from cli.commands.groups import START_COLUMNS, settings_in
from cli.kafka.connection import connected
from cli.kafka.mirror.compare import Row, compare, synced_groups
from cli.kafka.mirror.config import MirrorOptions, mirror_config
from cli.kafka.mirror.copy import carry_out, read_copy
from cli.kafka.mirror.take_over import Following, MakeGroup, TakeOver, plan
from cli.stack.mirror import mirror_argv, with_passwords
from cli.terminal.escaping import echo
from cli.terminal.exit_codes import ExitCode
from cli.terminal.layout import Column
from cli.terminal.options import namespace_option, option, output_option, together
from cli.terminal.output import Columns, print_json, print_objects
from shared.errors import SettingsInvalid
from shared.kafka.connect.access import KafkaAccess, access_from
from shared.model.names import Names
from shared.zookeeper.access import access_source
from shared.zookeeper.connection import ZooKeeper

CONNECT_S = 10.0
SESSION_TIMEOUT_S = 10.0
CHECK_COLUMNS: Columns = {
    "TOPIC": "topic",
    "PARTITION": "partition",
    "SOURCE": lambda row: _range(row["source"]),
    "TARGET": lambda row: _range(row["target"]),
    "BEHIND": "behind",
    "SECONDS": "behind_s",
    "COMPARED": "compared",
    "SAME OFFSETS": "same_offsets",
    "WRONG": Column(lambda row: "; ".join(row["faults"]), is_prose=True),
}


def _parse_address(_: click.Context, __: click.Parameter, bootstrap: str) -> KafkaAccess:
    """The locks are those of the environment, for both sides."""
    access = access_from(os.environ, bootstrap)
    if faults := access.faults():
        raise SettingsInvalid(faults)
    return access


def _side(flag: str, meaning: str) -> Any:
    return click.option(flag, required=True, metavar="HOST:PORT", callback=_parse_address, help=meaning)


source_option = _side("--source", "Bootstrap servers of the Kafka that is copied.")
target_option = _side("--target", "Bootstrap servers of the Kafka with the copy.")


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
    help="Copy without transactions: then a group may follow, but a crash may copy records twice.",
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

    The locks of the environment (BATON_KAFKA_…) count for both sides. Passwords are not printed: the
    properties name variables, which `baton mirror run` sets.
    """
    options = MirrorOptions(
        source=source,
        target=target,
        names=names,
        replication=replication,
        tasks=tasks,
        same_offsets=same_offsets,
    )
    echo(mirror_config(options), nl=False)


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


@mirror.command("check")
@together(source_option, target_option, namespace_option)
@click.option(
    "--sample", type=click.IntRange(1, 10_000), default=100, help="Records to compare at each end of a log."
)
@click.option("--all", "is_all", is_flag=True, help="Compare all records.")
@output_option
def check(
    source: KafkaAccess, target: KafkaAccess, names: Names, sample: int, is_all: bool, output: str
) -> None:
    """Compare the copy with its source: what is missing, how far it is behind, whether records agree.

    The exit code is 1 if anything is wrong. To be behind is not wrong.
    """
    rows, synced = asyncio.run(_compare(source, target, names, None if is_all else sample))
    found = [msgspec.structs.asdict(row) for row in rows]
    if output == "json":
        print_json({"partitions": found, "synced_groups": synced})
    else:
        print_objects(CHECK_COLUMNS, found)
    for group in synced:
        echo(f"the group {group} has offsets at the target, which are not its own", err=True)
    if not rows:
        echo("there are no topics of a Baton at the source", err=True)
    if synced or not rows or any(row.faults for row in rows):
        sys.exit(ExitCode.FAILED)


@mirror.command("take-over")
@together(
    target_option,
    namespace_option,
    option("--zookeeper", "BATON_ZOOKEEPER", "127.0.0.1:2181", "ZooKeeper of the target, `host:port,…`."),
    option("--user", "BATON_ZOOKEEPER_USER", "", "Baton's user in ZooKeeper."),
    option("--password-file", "BATON_ZOOKEEPER_PASSWORD_FILE", "", "File with its password, or with two."),
)
@click.option(
    "--streams", type=click.IntRange(1, 4096), help="How many the source had: refuse if there are others."
)
@click.option(
    "--follow", default="", metavar="GROUP", show_default=False, help="Make a group that follows this one."
)
@click.option("--as", "name", default="", metavar="NAME", show_default="GROUP-2", help="The group to make.")
@click.option(
    "--to", default="latest", metavar="WHERE", help="From when on it reads: a time, `latest`, `earliest`."
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of that group.")
@click.option("--dry-run", is_flag=True, help="Only show what there is to do.")
@output_option
def take_over(
    target: KafkaAccess,
    names: Names,
    zookeeper: str,
    user: str,
    password_file: str,
    streams: int | None,
    follow: str,
    name: str,
    to: str,
    settings: tuple[str, ...],
    dry_run: bool,
    output: str,
) -> None:
    """Make the copy a Baton of its own, once MirrorMaker has been stopped for good.

    Topics of fragments get the broker's time, the source's groups are marked as over, and ZooKeeper gets the
    stream table. Repeat the command after a failure; what is done already is left out. Without --follow,
    start members of a new group, which is alone: it makes all sessions anew.
    """
    following = None
    if follow:
        following = Following(
            follows=follow,
            group=name or f"{follow}-2",
            to=int(to) if to.isdigit() else to,
            settings=settings_in(settings),
        )
    elif name or settings or to != "latest":
        raise click.UsageError("--as, --to and --set belong to --follow")
    access = access_source(user, password_file) if user else None
    client = ZooKeeper(zookeeper, SESSION_TIMEOUT_S, access)
    found = asyncio.run(_take_over(target, client, names, streams, following, dry_run=dry_run))
    _print_plan(found, dry_run=dry_run, output=output)


async def _compare(
    source: KafkaAccess, target: KafkaAccess, names: Names, sample: int | None
) -> tuple[list[Row], list[str]]:
    async with connected(source) as ours, connected(target) as theirs:
        rows = await compare(ours, theirs, names, sample=sample)
        return rows, await synced_groups(theirs, names, sorted({row.topic for row in rows}))


async def _take_over(
    target: KafkaAccess,
    znodes: ZooKeeper,
    names: Names,
    streams: int | None,
    following: Following | None,
    *,
    dry_run: bool,
) -> TakeOver:
    try:
        async with connected(target) as cluster:
            await znodes.connect(CONNECT_S)
            copy = await read_copy(
                cluster, znodes, names, following, note=lambda text: echo(f"{text} …", err=True)
            )
            found = plan(copy, streams, following)
            for step in () if dry_run else found.steps:
                await carry_out(cluster, znodes, names, step)
            return found
    finally:
        await znodes.close()


def _print_plan(found: TakeOver, *, dry_run: bool, output: str) -> None:
    starts: list[Mapping[str, Any]] = [msgspec.structs.asdict(one) for one in found.starts]
    if output == "json":
        print_json({"steps": [str(step) for step in found.steps], "starts": starts, "done": not dry_run})
        return
    if starts:
        print_objects(START_COLUMNS, starts)
    for step in found.steps:
        echo(f"{'to do' if dry_run else 'done'}: {step}")
    if not found.steps:
        echo("nothing is left to do")
    elif not dry_run:
        made = [step.group for step in found.steps if isinstance(step, MakeGroup) and not step.start.is_over]
        over = [step.group for step in found.steps if isinstance(step, MakeGroup) and step.start.is_over]
        echo("start producers; do not start MirrorMaker again")
        if made:
            echo(f"start members with BATON_GROUP={made[0]}")
        elif over:
            echo(f"start members of a new group, such as BATON_GROUP={over[0]}-2")


def _range(place: tuple[int, int] | None) -> str | None:
    return None if place is None else f"{place[0]} … {place[1]}"
