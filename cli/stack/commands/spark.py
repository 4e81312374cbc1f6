"""`baton spark pack`: writes the archive that a cluster's executors need."""

from __future__ import annotations

from pathlib import Path

import click

from cli.terminal.escaping import echo


@click.group("spark")
def spark_group() -> None:
    """Prepare a Spark cluster for the jobs."""


@spark_group.command("pack")
@click.argument("target", type=click.Path(path_type=Path, dir_okay=False))
def pack(target: Path) -> None:
    """Write the archive TARGET (.zip) with the jobs' code and packages, for BATON_SPARK_PACK.

    The executors' Python must have the same minor version as this one, on the same kind of machine.
    """
    # only here: the command line works without Spark's packages
    from services.control.spark.session.pack import write_pack

    size = write_pack(target)
    echo(f"{target} has {size / 1e6:.0f} MB; set BATON_SPARK_PACK={target.absolute()} for control")
