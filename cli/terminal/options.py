"""The options that several commands share, so that each has one name, default and help text everywhere.

`cli/main.py` shows the default of every option in the help. Options that always come together are one
decorator here (`control_options`, `group_options`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from cli.terminal.escaping import echo
from cli.terminal.local_stack import find_home, find_stack
from shared.errors import SettingsInvalid
from shared.kafka.connect.access import KafkaAccess, access_from
from shared.model.names import DEFAULT_GROUP, Names, is_namespace

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def option(flag: str, variable: str, default: Any, meaning: str, **more: Any) -> Decorator:
    """An option that can also be set by an environment variable, which the help shows."""
    # an empty default means "unset"; the help would show it as `""`
    shown = default != ""
    return click.option(
        flag, envvar=variable, default=default, show_default=shown, show_envvar=True, help=meaning, **more
    )


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator; the help lists them in this order."""

    def add_all(command: Callable[..., Any]) -> Callable[..., Any]:
        # click lists the option that was applied last first
        for add in reversed(options):
            command = add(command)
        return command

    return add_all


def _parse_namespace(context: click.Context, _: click.Parameter, namespace: str | None) -> Names:
    if namespace is None:
        stack = find_stack()
        # the names are Kafka's; a command that does not talk to Kafka has them from control
        access = context.params.get("kafka")
        address = access.bootstrap if access is not None else context.params.get("url")
        is_local = stack is not None and address in (stack.kafka, stack.control)
        # at another address, the namespace of the local stack would be wrong
        namespace = stack.namespace if stack is not None and is_local else ""
    if not is_namespace(namespace):
        raise click.BadParameter("use lower-case letters, digits and `-` only")
    return Names(namespace)


CONTROL_URL = "http://127.0.0.1:8000"
PRODUCER_URL = "http://127.0.0.1:8001"
KAFKA = "127.0.0.1:9092"


def _parse_kafka(_: click.Context, __: click.Parameter, bootstrap: str) -> KafkaAccess:
    """How to reach Kafka; its locks are those of the environment, or else those of the local stack."""
    environment: Mapping[str, str] = os.environ
    stack = find_stack()
    if stack is not None and stack.kafka == bootstrap and not access_from(environment, "").is_given:
        environment = stack.kafka_locks
    access = access_from(environment, bootstrap)
    if faults := access.faults():
        raise SettingsInvalid(faults)
    for remark in access.remarks():
        echo(f"baton: {remark}", err=True)
    return access


def address_option(
    flag: str, variable: str, service: str, otherwise: str, meaning: str, **more: Any
) -> Decorator:
    """An option with an address: by default that of the local stack that runs here, else `otherwise`."""

    def default() -> str:
        stack = find_stack()
        return (getattr(stack, service) if stack else "") or otherwise

    return click.option(
        flag,
        envvar=variable,
        default=default,
        show_default=f"the local stack of this folder, else {otherwise}",
        show_envvar=True,
        help=meaning,
        **more,
    )


url_option = address_option("--url", "BATON_URL", "control", CONTROL_URL, "Base URL of control.")
wait_url_option = address_option(
    "--control", "BATON_URL", "control", CONTROL_URL, "Base URL of control, to ask for groups."
)
kafka_option = address_option(
    *("--kafka", "BATON_KAFKA", "kafka", KAFKA, "Bootstrap servers of Kafka."), callback=_parse_kafka
)
namespace_option = click.option(
    "--namespace",
    "names",
    envvar="BATON_NAMESPACE",
    default=None,
    show_default=False,
    show_envvar=True,
    callback=_parse_namespace,
    help="Namespace of this Baton, if it has one.",
)
home_option = click.option(
    "--home",
    envvar="BATON_HOME",
    default=find_home,
    show_default="the nearest .baton of a stack, here or above, else .baton here",
    show_envvar=True,
    type=click.Path(path_type=Path),
    help="Folder of the stack's data, logs and pids.",
)
port_offset_option = option(
    "--port-offset", "BATON_PORT_OFFSET", 0, "Added to every port, so that several stacks can run."
)
secure_option = click.option(
    "--secure",
    is_flag=True,
    help="Lock everything, with certificates and passwords that are made in the home; for its data for good.",
)
group_option = click.option("--group", default=DEFAULT_GROUP, help="Name of the group.")
output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Tables for people, or JSON for programs.",
)

control_options = together(url_option, output_option)
group_options = together(group_option, control_options)
producer_options = together(
    address_option("--url", "BATON_PRODUCER_URL", "producer", PRODUCER_URL, "Base URL of the producer."),
    option(
        "--write-key",
        "BATON_WRITE_KEY",
        "",
        "Write key, if the producer requires one (markers need its scope `mark`); safer in the environment "
        "than on the command line.",
    ),
)
kafka_options = together(kafka_option, namespace_option)
