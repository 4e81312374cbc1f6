"""Where the parts of a local stack are, for a person: printed when `baton up` or a demo leaves it running."""

from __future__ import annotations

import shlex

from cli.stack.options import StackOptions
from cli.stack.secured.locks import FOLDER, OPERATOR, StackLocks


def console_url(options: StackOptions) -> str:
    """The page on which control shows everything."""
    return f"{options.control_url}/"


def summary_of(options: StackOptions) -> str:
    """The addresses of the stack, and what to export for commands that do not find it by themselves."""
    locks = StackLocks(folder=options.home / FOLDER, certificate_port=options.certificate_port)
    login = f" (log in with the token in {locks.token_file})" if options.secure else ""
    if options.control_tokens:
        login = f" (log in with a token of {options.control_tokens}; commands need it in BATON_TOKEN_FILE)"
    addresses = {
        "console": console_url(options) + login,
        "control": options.control_url,
        "producer": options.producer_url,
        "queue": options.queue_url,
        "Kafka": options.kafka_address,
        "ZooKeeper": options.zookeeper_address,
        "logs": str(options.home / "logs"),
    }
    exports: dict[str, str] = {
        "BATON_URL": options.control_url,
        "BATON_PRODUCER_URL": options.producer_url,
        "BATON_QUEUE_URL": options.queue_url,
        "BATON_KAFKA": options.kafka_address,
        "BATON_NAMESPACE": options.namespace,
    }
    if options.secure:
        exports |= locks.tls_environment(OPERATOR) | locks.kafka_environment(OPERATOR)
        exports |= {"BATON_TOKEN_FILE": str(locks.token_file)}
    # a home of another name is not searched for
    found = (
        f"in {options.home.parent} and below"
        if options.home.name == ".baton"
        else f"with BATON_HOME={shlex.quote(str(options.home))}"
    )
    return "\n".join(
        [
            *(f"  {name:<10} {address}" for name, address in addresses.items()),
            f"`baton` finds this stack {found}; elsewhere, and for other programs:",
            *(f"  export {name}={shlex.quote(value)}" for name, value in exports.items() if value),
        ]
    )
