"""`baton jars`: downloads the jars of the lock file, so that later starts need no network and are fast."""

from __future__ import annotations

import click

from cli.stack.jars.downloads import fetch_jars
from cli.stack.jars.lock import OPTIONAL, USES, Use, jar_folder, read_lock
from cli.stack.servers.class_archives import ensure_archive
from cli.terminal.escaping import echo
from cli.terminal.interrupts import interruptible
from shared.class_archive import PROGRAMS, archive_of


@click.command()
@click.option(
    "--with",
    "more",
    type=click.Choice(OPTIONAL),
    multiple=True,
    help="Also download the jars of MirrorMaker, or those for a lake on s3a://….",
)
def jars(more: tuple[Use, ...]) -> None:
    """Download the jars of the lock file into the cache and verify their sha256.

    Then archive the classes of Kafka and Spark, so that both start sooner; this takes a minute.
    """
    for use in (*USES, *more):
        with interruptible(lambda: "the same command downloads what is missing"):
            fetched = fetch_jars(use)
        echo(f"{use}: {len(read_lock(use))} jars in {jar_folder(use)}, {len(fetched)} of them downloaded now")
    for program in PROGRAMS:
        with interruptible(lambda: "without archives of classes, Kafka and Spark start more slowly"):
            has_archive = ensure_archive(program)
        made = "has" if has_archive else "starts more slowly, because Java could not make"
        echo(f"{program}: {made} an archive of its classes in {archive_of(program)}")
