"""The options that several commands share, so that each has one name, default and help text everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from shared.model.names import DEFAULT_GROUP, Names, is_namespace

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _url_option(flag: str, variable: str, port: int, meaning: str) -> Decorator:
    return click.option(
        flag,
        envvar=variable,
        default=f"http://127.0.0.1:{port}",
        show_default=True,
        show_envvar=True,
        help=meaning,
    )


def _parse_namespace(_: click.Context, __: click.Parameter, namespace: str) -> Names:
    if not is_namespace(namespace):
        raise click.BadParameter("use lower-case letters, digits and `-` only")
    return Names(namespace)


url_option = _url_option("--url", "BATON_URL", 8000, "Base URL of control.")
wait_url_option = _url_option("--control", "BATON_URL", 8000, "Base URL of control, for --wait.")
producer_url_option = _url_option("--url", "BATON_PRODUCER_URL", 8001, "Base URL of the producer.")

write_key_option = click.option(
    "--write-key",
    envvar="BATON_WRITE_KEY",
    default="",
    show_envvar=True,
    help="Write key, if the producer requires one; safer in the environment than on the command line.",
)

group_option = click.option(
    "--group", default=DEFAULT_GROUP, show_default=True, help="Name of the consumer group."
)

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Tables for people, or JSON for programs.",
)

kafka_option = click.option(
    "--kafka",
    envvar="BATON_KAFKA",
    default="127.0.0.1:9092",
    show_default=True,
    show_envvar=True,
    help="Bootstrap servers of Kafka.",
)

namespace_option = click.option(
    "--namespace",
    "names",
    envvar="BATON_NAMESPACE",
    default="",
    show_envvar=True,
    callback=_parse_namespace,
    help="Namespace of this Baton, if it has one.",
)

home_option = click.option(
    "--home",
    type=click.Path(path_type=Path),
    envvar="BATON_HOME",
    default=Path(".baton"),
    show_default=True,
    help="Folder of the stack's data, logs and pids.",
)

port_offset_option = click.option(
    "--port-offset", envvar="BATON_PORT_OFFSET", default=0, show_default=True, help="Added to every port."
)
