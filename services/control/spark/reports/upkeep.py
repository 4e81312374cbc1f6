"""Brings the state up to a version of `sessions`: adds what is new, or counts everything again.

Sums cannot forget, so if rows that were counted have changed (deleted, restored, another table in its place),
or if the log no longer tells, all is counted again. A new JSON path is counted once over all sessions.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from services.control.spark.reports.batches import BEGINNING, Batch, is_chain, to_merge
from services.control.spark.reports.commits import NewFiles, Rewritten
from services.control.spark.reports.counting import blocks_part, count, has_blocks, steps_part, to_blocks
from services.control.spark.reports.plan import ItemRules, ReportPlan
from services.control.spark.reports.sessions import SessionsTable
from services.control.spark.reports.state import State

Chains = Mapping[str, Sequence[Batch]]
"""The batches of each part, sorted."""


class Upkeep(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did to the state: `counted` is `new`, `all` or `nothing`; `why` all was counted again.

    `batches`: what the state has now.
    """

    counted: str
    batches: Chains
    why: str | None = None

    @property
    def lineage(self) -> str:
        """Names the run that counted everything."""
        return next(iter(self.batches.values()))[-1].lineage


def parts_of(plan: ReportPlan) -> dict[str, str]:
    """The parts of the state that a plan needs, each with its JSON path ("" if it has none)."""
    return {"quarters": "", "visits": "", "keys": ""} | {
        steps_part(path, plan.rules): path for path in plan.paths
    }


def bring_up(state: State, sessions: SessionsTable, plan: ReportPlan) -> Upkeep:
    """Counts what the plan's parts do not hold yet."""
    parts = parts_of(plan)
    known = state.batches()
    try:
        if known:
            return _add(state, sessions, parts, plan.rules, known)
        why = None
    except Rewritten as reason:
        why = str(reason)
    whole = dict.fromkeys(parts, _whole(sessions, secrets.token_hex(8)))
    state.replace(_counted(sessions.all(), parts, plan.rules), whole, all_parts=True)
    return Upkeep(counted="all", batches={part: [batch] for part, batch in whole.items()}, why=why)


def _add(
    state: State,
    sessions: SessionsTable,
    parts: Mapping[str, str],
    rules: ItemRules,
    known: Chains,
) -> Upkeep:
    """Adds to the parts that exist, and counts those that do not. Raises Rewritten before it changes any."""
    lineages = {batches[-1].lineage for batches in known.values()}
    if not all(map(is_chain, known.values())) or len(lineages) > 1:
        raise Rewritten("the batches of the state do not make a chain")
    behind: dict[NewFiles, dict[str, Batch]] = {}
    for part in parts.keys() & known.keys():
        last = known[part][-1]
        if last.table_id != sessions.table_id:
            raise Rewritten("the table `sessions` was made again")
        if last.version > sessions.version:
            raise Rewritten(f"the table `sessions` was restored to version {sessions.version}")
        added = sessions.added(last.version, last.commit)
        if added.paths:
            batch = _whole(sessions, last.lineage)
            behind.setdefault(added, {})[part] = msgspec.structs.replace(batch, since=last.version)
    now = dict(known)
    missing = {part: path for part, path in parts.items() if part not in known}
    for files, batches in behind.items():
        rows = _counted(sessions.read(files), {part: parts[part] for part in batches}, rules)
        state.append(rows, batches)
        now |= {part: [*known[part], batch] for part, batch in batches.items()}
    if missing:
        whole = dict.fromkeys(missing, _whole(sessions, lineages.pop()))
        state.replace(_counted(sessions.all(), missing, rules), whole, all_parts=False)
        now |= {part: [batch] for part, batch in whole.items()}
    return Upkeep(counted="new" if behind or missing else "nothing", batches=now)


def compact(state: State, chains: Chains) -> int:
    """Sums the newest batches of each part if there are many, and brings its blocks up to them.

    Returns how many batches went.
    """
    merges: dict[tuple[Batch, ...], list[str]] = {}
    for part, batches in chains.items():
        if newest := to_merge(batches):
            merges.setdefault(newest, []).append(part)
    for batches_, parts in merges.items():
        _add_blocks(state, [part for part in parts if has_blocks(part)], batches_[-1])
        state.merge(sorted(parts), batches_)
    return sum((len(batches_) - 1) * len(parts) for batches_, parts in merges.items())


def _add_blocks(state: State, parts: Sequence[str], last: Batch) -> None:
    """Brings the blocks of these parts up to a batch, before it is merged with others that they may have."""
    behind: dict[int, list[str]] = {}
    for part in parts:
        if (since := state.blocks_until(part)) < last.version:
            behind.setdefault(since, []).append(part)
    for since, those in behind.items():
        is_new = f.col("version") > since
        rows = {blocks_part(part): to_blocks(state.rows(part).where(is_new), part) for part in those}
        batch = msgspec.structs.replace(last, since=since, level=0)
        state.append(rows, dict.fromkeys(rows, batch))


def _counted(sessions: DataFrame, parts: Mapping[str, str], rules: ItemRules) -> dict[str, DataFrame]:
    return {part: count(sessions, part, path, rules) for part, path in parts.items()}


def _whole(sessions: SessionsTable, lineage: str) -> Batch:
    """A batch of everything up to the version that is read."""
    return Batch(
        since=BEGINNING,
        version=sessions.version,
        level=0,
        lineage=lineage,
        table_id=sessions.table_id,
        commit=sessions.commit(),
    )
