"""A real web log through the whole stack while consumers are killed, join and leave.

The expected numbers were counted on the log itself, without Baton: 30,969 requests of 2,365 hosts, 2,989
sessions with a gap of 30 minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from cli.stack.local import LocalStack
from shared.model.group import GroupSettings
from shared.model.names import Names
from tests.e2e.readers import Where, judge
from tests.e2e.stack import Stacks, baton_json, busiest, importing, left_running, log_lines, settled

FRAGMENTS = 30_969
KEYS = 2_365
SESSIONS = 2_989
PARTITIONS = 6
"""Of the topic `sessions`, as a member makes it."""

Happening = Literal["kill", "join", "leave"]
QUIET: Sequence[Happening] = ()
KILLS: Sequence[Happening] = ("kill", "kill", "kill")
COMINGS: Sequence[Happening] = ("join", "leave", "join", "leave", "leave", "join")
EVERYTHING: Sequence[Happening] = ("kill", "join", "kill", "leave", "kill", "join", "leave")


async def test_a_real_log_stays_exact_through_kills_joins_and_leaves(
    stacks: Stacks, nasa_log: Path, tmp_path: Path
) -> None:
    """Three SIGKILLs, two joins and two leaves during the import change no session: Spark's audit agrees."""
    async with stacks(24) as stack:
        summary = await import_with(stack, nasa_log, EVERYTHING)

        await check_all(stack, summary)

    assert left_running(tmp_path) == []


@pytest.mark.soak
@pytest.mark.parametrize("happenings", [QUIET, KILLS, COMINGS], ids=["quiet", "kills", "joins-and-leaves"])
@pytest.mark.parametrize("streams", [1, 24, 97])
async def test_a_real_log_is_exact_with_any_number_of_streams(
    stacks: Stacks, nasa_log: Path, streams: int, happenings: Sequence[Happening]
) -> None:
    """The sessions of a log do not depend on the number of streams, nor on who owned them when."""
    async with stacks(streams) as stack:
        summary = await import_with(stack, nasa_log, happenings)

        await check_all(stack, summary)


async def import_with(stack: LocalStack, log: Path, happenings: Sequence[Happening]) -> dict[str, Any]:
    """Imports the log in parts; between two parts one thing happens to the consumer it hurts most."""
    lines = log_lines(log)
    part = -(-len(lines) // (len(happenings) + 1))
    async with importing(stack, log.name, "--format", "tsv", "--key", "host", "--time", "time") as feeder:
        await feeder.feed(lines[:part])
        for number, happening in enumerate(happenings, 1):
            await make_happen(stack, happening)
            await feeder.feed(lines[number * part : (number + 1) * part])
        return await feeder.finish()


async def make_happen(stack: LocalStack, happening: Happening) -> None:
    """One consumer more or less; the one with the most open sessions goes."""
    if happening == "join":
        await stack.add_consumer()
        return
    victim = await busiest(stack)
    if happening == "leave":
        await stack.stop_consumer(victim)
    else:
        await stack.kill_consumer(victim)


async def check_all(stack: LocalStack, summary: Mapping[str, Any]) -> None:
    """Importer, heads, the dumb twin's fold over the raw log, and Spark's audit all say the same."""
    totals = (await settled(stack))["totals"]
    streams = stack.options.streams
    where = Where(stack.options.kafka_address, Names(stack.options.namespace), streams, PARTITIONS)
    delivered = await where.delivered()
    audit = (await baton_json(stack, "run", "audit", "--wait"))["result"]

    assert (summary["lines"], summary["accepted"], summary["delivered"]) == (FRAGMENTS, FRAGMENTS, True)
    assert (totals["sessions"], totals["delivered"]) == (SESSIONS, FRAGMENTS)
    assert totals["fragments"] - totals["repeats"] == FRAGMENTS
    assert totals["markers"] == streams
    assert len({session.key for session in delivered}) == KEYS
    assert await judge(where, GroupSettings(), delivered) == []
    assert {name: audit[name] for name in ("missing", "extra", "different")} == dict.fromkeys(
        ("missing", "extra", "different"), 0
    )
    assert (audit["judged"], audit["not_judged"], audit["open"]) == (SESSIONS, 0, 0)
    assert audit["fragments"] == totals["fragments"]
