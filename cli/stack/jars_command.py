"""`baton jars`: downloads the jars of the lock file, so that later starts need no network."""

from __future__ import annotations

import click

from cli.stack.jars import fetch_all
from cli.stack.lock import jar_folder


@click.command()
def jars() -> None:
    """Download the jars of the lock file into the cache and verify their sha256."""
    for use, fetched in fetch_all().items():
        click.echo(
            f"{use}: {fetched.kept + len(fetched.fetched)} jars in {jar_folder(use)},"
            f" {len(fetched.fetched)} of them downloaded now"
        )
