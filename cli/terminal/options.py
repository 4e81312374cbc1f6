"""The options that several commands share, so that each has one name, default and help text everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from shared.model.names import DEFAULT_GROUP, Names, is_namespace

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def option(flag: str, variable: str, default: Any, meaning: str, **more: Any) -> Decorator:
    """An option that can also be set by an environment variable, both shown in the help."""
    return click.option(
        flag,
        **more,
        envvar=variable,
        default=default,
        show_default=bool(str(default)),
        show_envvar=True,
        help=meaning,
    )


def _parse_namespace(_: click.Context, __: click.Parameter, namespace: str) -> Names:
    if not is_namespace(namespace):
        raise click.BadParameter("use lower-case letters, digits and `-` only")
    return Names(namespace)


url_option = option("--url", "BATON_URL", "http://127.0.0.1:8000", "Base URL of control.")
wait_url_option = option(
    "--control", "BATON_URL", "http://127.0.0.1:8000", "Base URL of control, for --wait."
)
producer_url_option = option(
    "--url", "BATON_PRODUCER_URL", "http://127.0.0.1:8001", "Base URL of the producer."
)
write_key_option = option(
    "--write-key",
    "BATON_WRITE_KEY",
    "",
    "Write key, if the producer requires one; safer in the environment than on the command line.",
)
kafka_option = option("--kafka", "BATON_KAFKA", "127.0.0.1:9092", "Bootstrap servers of Kafka.")
namespace_option = click.option(
    "--namespace",
    "names",
    envvar="BATON_NAMESPACE",
    default="",
    show_envvar=True,
    callback=_parse_namespace,
    help="Namespace of this Baton, if it has one.",
)
home_option = option(
    "--home",
    "BATON_HOME",
    Path(".baton"),
    "Folder of the stack's data, logs and pids.",
    type=click.Path(path_type=Path),
)
port_offset_option = option(
    "--port-offset", "BATON_PORT_OFFSET", 0, "Added to every port, so that several stacks can run."
)

group_option = click.option("--group", default=DEFAULT_GROUP, show_default=True, help="Name of the group.")
output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Tables for people, or JSON for programs.",
)
