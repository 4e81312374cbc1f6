"""Checks of ZooKeeper: does each server serve, have they a majority, and can what Baton stores be read?"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Mapping

from cli.commands.checks.findings import Finding, ok, unknown, wrong
from cli.terminal.output import counted
from shared.errors import InvalidInput, ZooKeeperRefused
from shared.model.group import parse_group_settings
from shared.model.names import Names
from shared.together import together
from shared.zookeeper.access import AccessSource
from shared.zookeeper.connection import ZooKeeper
from shared.zookeeper.stream_table import TableUnreadable, read_table

PROBE_S = 3.0
CONNECT_S = 10.0
SESSION_TIMEOUT_S = 10.0
NOT_SERVING = "not currently serving"


async def check_servers(servers: str) -> list[Finding]:
    """A finding for each server of `host:port,…`, and one for their majority."""
    addresses = [server.strip() for server in servers.split(",")]
    answers = await together(map(_ask, addresses))
    return judge_servers(dict(zip(addresses, answers, strict=True)))


def judge_servers(answers: Mapping[str, str]) -> list[Finding]:
    """The findings from each server's answer to `srvr`; an empty answer is none."""
    findings = []
    for address, answer in answers.items():
        about = f"zookeeper {address}"
        mode, version = (re.search(pattern, answer) for pattern in (r"Mode: (\w+)", r"version: ([\d.]+)"))
        if mode is not None:
            findings.append(ok(about, f"{mode[1]}, version {version[1] if version else 'unknown'}"))
        elif NOT_SERVING in answer:
            todo = "start the other servers of its ensemble, and look at its log for why it finds no leader"
            findings.append(wrong(about, "it runs, but has no leader", todo))
        elif answer:
            todo = "allow `srvr` in its 4lw.commands.whitelist, ZooKeeper's default"
            findings.append(unknown(about, "it answers, but not this question", todo))
        else:
            todo = "start it, or correct BATON_ZOOKEEPER"
            findings.append(wrong(about, "no answer", todo))
    return findings + _judge_majority(findings)


def _judge_majority(findings: list[Finding]) -> list[Finding]:
    total, down = len(findings), sum(finding.state == "wrong" for finding in findings)
    if total < 2:
        return []
    spare = (total - 1) // 2 - down
    about, says = "zookeeper ensemble", f"{total - down} of {total} servers serve"
    if spare < 0:
        return [wrong(about, f"{says}: no majority, so nobody can claim a stream", "start the missing ones")]
    if spare == 0:
        todo = "start the missing ones" if down else "use three servers or five"
        return [wrong(about, f"{says}: if one more goes, all stops", todo)]
    return [ok(about, says)]


@contextlib.asynccontextmanager
async def connected_to(servers: str, access: AccessSource | None) -> AsyncIterator[ZooKeeper]:
    """A client, open during the block. Raises ZooKeeperUnavailable."""
    # it would log each attempt; the findings say what matters
    chatty = logging.getLogger("shared.zookeeper")
    level = chatty.level
    chatty.setLevel(logging.CRITICAL)
    client = ZooKeeper(servers, SESSION_TIMEOUT_S, access)
    try:
        await client.connect(CONNECT_S)
        yield client
    finally:
        await client.close()
        chatty.setLevel(level)


async def check_znodes(servers: str, access: AccessSource | None, names: Names) -> list[Finding]:
    """Whether the stream table and the groups' settings can be read. Raises ZooKeeperUnavailable."""
    async with connected_to(servers, access) as client:
        try:
            return [await _check_table(client, names), *await _check_groups(client, names)]
        except ZooKeeperRefused as error:
            todo = "set BATON_ZOOKEEPER_USER and BATON_ZOOKEEPER_PASSWORD_FILE as the services have them"
            return [wrong(f"znodes under {names.root}", error.detail, todo)]


async def _check_table(client: ZooKeeper, names: Names) -> Finding:
    about = f"stream table {names.table}"
    try:
        table = await read_table(client, names)
    except TableUnreadable as error:
        return wrong(about, error.detail, "write it back from a backup (docs/operations.md, A znode is …)")
    if table is None:
        return wrong(about, "there is none", "start a producer, which creates it; check BATON_NAMESPACE")
    return ok(about, f"{table.count:,} streams")


async def _check_groups(client: ZooKeeper, names: Names) -> list[Finding]:
    findings = []
    for group in await client.children(names.groups):
        about, znode = f"group {group}", await client.get(names.group(group))
        members = await client.children(names.members(group))
        try:
            parse_group_settings(znode.data if znode is not None else b"")
        except InvalidInput as error:
            todo = "write them back from a backup (docs/operations.md, A znode is unreadable)"
            findings.append(wrong(about, error.detail, todo))
            continue
        if members:
            findings.append(ok(about, counted(len(members), "member")))
        else:
            findings.append(
                wrong(about, "it has no members, so its streams are not read", "start a consumer")
            )
    return findings


async def _ask(address: str) -> str:
    """The server's answer to `srvr`; empty without one."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                writer.write(b"srvr")
                return (await reader.read()).decode(errors="replace")
            finally:
                writer.close()
    return ""
