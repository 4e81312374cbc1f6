"""`baton rejected show | dismiss`: one reject with all its rejections, and an end for hopeless ones."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from typing import Any

import click

from cli.kafka.rejects import StoredReject, dismiss_rejects, open_rejected
from cli.rejects.identity import OpenRejects, posted_of
from cli.rejects.replay import ReplayLog, read_open
from cli.terminal.escaping import echo, escaped
from cli.terminal.options import kafka_options, output_option
from cli.terminal.output import print_json, time_text
from shared.errors import NotFound
from shared.kafka.connect.access import Kafka
from shared.model.names import Names
from shared.model.rejects import REASONS

_ID = re.compile(r"\d{1,18}/\d{1,18}")


def parse_ids(_: click.Context, __: click.Parameter, ids: tuple[str, ...]) -> tuple[str, ...]:
    """Ids of rejects, for `callback=`; accepts the id of a replayed fragment, too. Raises BadParameter."""
    found = tuple(one.removeprefix("rejected/") for one in ids)
    if wrong := [one for one in found if not _ID.fullmatch(one)]:
        raise click.BadParameter(f"{wrong[0]!r} is not the id of a reject, as `baton rejected` shows it")
    return found


def parse_reason(_: click.Context, __: click.Parameter, reason: str | None) -> str | None:
    """The reason, if it is one, as a callback of click. Raises BadParameter with the list of them."""
    # an unknown one would find nothing, and a replay would commit that nothing is left
    if reason not in (None, *REASONS):
        raise click.BadParameter(f"{reason!r} is not a reason; use one of {', '.join(REASONS)}")
    return reason


@click.command("show")
@click.argument("ids", metavar="ID", nargs=1, callback=lambda c, p, one: parse_ids(c, p, (one,)))
@kafka_options
@output_option
def show(ids: tuple[str, ...], kafka: Kafka, names: Names, output: str) -> None:
    """Show the reject with this ID in full: as it was posted, and each time it was rejected, and why.

    Everything unprintable is escaped. `baton rejected` shows the ids.
    """
    found, rejects = asyncio.run(_find(kafka, names, ids))
    rows = [row_of(stored) for stored in found]
    is_dismissed = any(map(rejects.is_dismissed, found))
    first = posted_of(found[0])
    if output == "json":
        print_json(
            {"id": first.id, "dismissed": is_dismissed, "posted": escaped(first.value), "rejections": rows}
        )
        return
    echo(f"reject {first.id}{', dismissed' if is_dismissed else ''}")
    for row in rows:
        cut = ", cut" if row["cut"] else ""
        echo(
            f"{time_text(row['time'])}  {row['reason']}: {row['detail']}"
            f" ({row['size']:,} bytes{cut}, item {row['index']} of its request)"
        )
    echo(first.value)


@click.command("dismiss")
@click.argument("ids", metavar="[ID]...", nargs=-1, callback=parse_ids)
@click.option("--reason", callback=parse_reason, help="Dismiss all rejects with this reason.")
@kafka_options
def dismiss(ids: tuple[str, ...], reason: str | None, kafka: Kafka, names: Names) -> None:
    """Dismiss rejects that no fix helps, by ID or by reason: they are not listed or replayed any more.

    They stay in the topic until its retention removes them, and `baton rejected show` still finds them.
    """
    if bool(ids) == (reason is not None):
        raise click.UsageError("give either ids or --reason")
    count = asyncio.run(_dismiss(kafka, names, ids, reason))
    echo(f"dismissed {count:,} {'reject' if count == 1 else 'rejects'}")


def row_of(stored: StoredReject) -> dict[str, Any]:
    """One rejection, as `-o json` prints it."""
    reject = stored.reject
    return {
        "partition": stored.partition,
        "offset": stored.offset,
        "time": stored.time_ms,
        "reason": reject.reason,
        "detail": reject.detail,
        "size": posted_of(stored).size,
        "index": reject.index,
        "cut": reject.is_cut,
    }


async def matching(
    log: ReplayLog, ids: Collection[str], reason: str | None = None, rejects: OpenRejects | None = None
) -> list[StoredReject]:
    """The records of these rejects, or the open ones of `rejects` with the reason, in order of time.

    Raises NotFound for an id that no record has, KafkaUnavailable.
    """
    found = []
    for partition, (first, _) in log.bounds.items():
        async for page in log.read(partition, first):
            for stored in page:
                is_meant = posted_of(stored).id in ids and not stored.dismisses
                if is_meant or (rejects and stored.reject.reason == reason and rejects.is_open(stored)):
                    found.append(stored)
    if missing := set(ids) - {posted_of(stored).id for stored in found}:
        raise NotFound(f"there is no reject {min(missing)}; `baton rejected` lists the ids")
    return sorted(found, key=lambda stored: (stored.time_ms, stored.partition, stored.offset))


async def _find(kafka: Kafka, names: Names, ids: tuple[str, ...]) -> tuple[list[StoredReject], OpenRejects]:
    async with open_rejected(kafka, names) as log:
        return await matching(log, ids), await read_open(log)


async def _dismiss(kafka: Kafka, names: Names, ids: tuple[str, ...], reason: str | None) -> int:
    async with open_rejected(kafka, names) as log:
        rejects = await read_open(log) if reason is not None else None
        # once each, however often they were rejected
        found = dict.fromkeys(
            posted_of(stored).identity for stored in await matching(log, ids, reason, rejects)
        )
    if found:
        await dismiss_rejects(kafka, names, found)
    return len(found)
