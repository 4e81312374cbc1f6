"""`baton zookeeper lock | unlock`: gives the znodes that exist to Baton's user alone, or opens them to all.

Services lock what they create (BATON_ZOOKEEPER_USER). What existed before, and what bears only an old
password, changes by these commands. docs/security.md says when an operator needs which.
"""

from __future__ import annotations

import asyncio

import click

from cli.stack.secured.znode_locks import change_acls
from cli.terminal.escaping import echo
from cli.terminal.options import namespace_option, option, together
from shared.errors import InvalidInput
from shared.model.names import Names
from shared.zookeeper.access import access_source
from shared.zookeeper.connection import ZooKeeper

CONNECT_S = 10.0
SESSION_TIMEOUT_S = 10.0

_access_options = together(
    option("--zookeeper", "BATON_ZOOKEEPER", "127.0.0.1:2181", "Servers of ZooKeeper, `host:port,…`."),
    option("--user", "BATON_ZOOKEEPER_USER", "", "Baton's user in ZooKeeper."),
    option("--password-file", "BATON_ZOOKEEPER_PASSWORD_FILE", "", "File with its password, or with two."),
    namespace_option,
    click.option("--yes", is_flag=True, help="Do not ask."),
)


@click.group("zookeeper")
def zookeeper_group() -> None:
    """Lock the existing znodes to Baton's user, or open them to all."""


@zookeeper_group.command("lock")
@_access_options
def lock(zookeeper: str, user: str, password_file: str, names: Names, yes: bool) -> None:
    """Give every znode to the user alone, under each password in the file.

    Every process needs the user before; and while passwords are rotated, a password that the file has.
    """
    asyncio.run(_change(zookeeper, user, password_file, names, is_locked=True, is_agreed=yes))


@zookeeper_group.command("unlock")
@_access_options
def unlock(zookeeper: str, user: str, password_file: str, names: Names, yes: bool) -> None:
    """Open every znode to everybody who reaches ZooKeeper."""
    asyncio.run(_change(zookeeper, user, password_file, names, is_locked=False, is_agreed=yes))


async def _change(
    servers: str, user: str, password_file: str, names: Names, *, is_locked: bool, is_agreed: bool
) -> None:
    if not user or not password_file:
        raise InvalidInput("set BATON_ZOOKEEPER_USER and BATON_ZOOKEEPER_PASSWORD_FILE")
    access = access_source(user, password_file)
    assert access is not None
    client = ZooKeeper(servers, SESSION_TIMEOUT_S, access)
    try:
        # before connecting, which would wait for the file
        valid = len((await access.read()).passwords)
        await client.connect(CONNECT_S)
        what = f"all of {names.root} to the user {user!r} ({valid} valid password{'s' * (valid > 1)})"
        what = f"lock {what}" if is_locked else f"open all of {names.root} to everybody"
        if not is_agreed and not click.confirm(f"{what}?"):
            echo("nothing was changed")
            raise click.exceptions.Exit(1)
        counts = await change_acls(client, names.root, is_locked=is_locked)
    finally:
        await client.close()
    echo(f"{counts[True]:,} znodes changed, {counts[False]:,} were so already")
