"""Makes groups that follow others, gives them other names, and deletes them.

The core decides (`rewinds.py` and `following.py` in `core/groups`); this file reads the facts, and
writes once. A rewind or promotion is an operation that is done as soon as it was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import msgspec

from services.control.core.causes import Cause
from services.control.core.groups.following import (
    CurrentRow,
    NameTaken,
    check_caught_up,
    current_in,
    made_anew,
)
from services.control.core.groups.rewinds import (
    RewindForecast,
    RewindRefused,
    RewindWish,
    StreamFacts,
    StreamStart,
    check_wish,
    group_start,
    new_settings,
    plan_of,
    start_of,
    time_of_wish,
)
from services.control.core.operations.forecasts import (
    Forecast,
    PlanChanged,
    check_plan,
    plan_digest,
    totals_for,
)
from services.control.core.operations.likely import Likely
from services.control.core.operations.operation import Operation
from services.control.core.operations.wishes import Wish
from services.control.live.acts.actions import Actions
from services.control.live.acts.operations import Effect, Operations
from services.control.live.view.cluster_view import ClusterView, UnknownGroup
from services.control.ports import GroupStore, RewindSource
from shared.errors import InvalidInput, Unavailable
from shared.model.names import Names, is_group_name
from shared.model.start import MAX_CHAIN, GroupStart, reaching_cuts
from shared.together import together


class Groups:
    """The groups that `view` shows."""

    def __init__(
        self,
        view: ClusterView,
        operations: Operations,
        store: GroupStore,
        source: RewindSource,
        actions: Actions,
        names: Names,
    ) -> None:
        self._view = view
        self._operations = operations
        self._store = store
        self._source = source
        self._actions = actions
        self._names = names
        self._making = asyncio.Lock()

    async def forecast(self, wish: RewindWish) -> RewindForecast:
        """What the rewind would make.

        Raises UnknownGroup, InvalidInput, NameTaken, RewindRefused, Unavailable.
        """
        return (await self._forecast(wish))[0]

    async def rewind(self, wish: RewindWish, cause: Cause, *, if_plan: str | None = None) -> Operation:
        """The operation, after the new group was made.

        Raises what `forecast` raises, PlanChanged, GroupChanged, KeyReused.
        """

        async def prepare() -> Effect:
            found, facts = await self._forecast(wish)
            if if_plan not in (None, found.plan):
                raise PlanChanged(
                    "the group would now start elsewhere; look at the dry run again",
                    members={"plan": found.plan},
                )
            logs = {stream: one.log_number for stream, one in facts.items()}
            starts = {one.stream: one.start for one in found.streams if one.start is not None}
            start = group_start(found, logs, await self._source.appended(starts))
            return partial(self._store.create, wish.as_, found.settings, start, wish.group)

        return await self._carry_out(Wish(kind="rewind", group=wish.group, to=wish.as_), cause, prepare)

    async def promote(self, group: str, alias: str, cause: Cause, *, if_plan: str | None = None) -> Operation:
        """The operation, after the alias names the group.

        Raises UnknownGroup, InvalidInput, GroupBehind, PlanChanged, GroupChanged, Unavailable, KeyReused.
        """

        async def prepare() -> Effect:
            check_plan(self.forecast_promotion(group, alias), if_plan)
            return partial(self._store.name, alias, group)

        return await self._carry_out(Wish(kind="promote", group=group, to=alias), cause, prepare)

    def forecast_promotion(self, group: str, alias: str) -> Forecast:
        """That nothing would move. Raises UnknownGroup, InvalidInput, GroupBehind, Unavailable."""
        self._view.group(group)
        if not is_group_name(alias):
            raise InvalidInput("`alias`: lower-case letters, digits, `_` and `-`, at most 61")
        observed, named = self._view.served().observed, self._view.named(alias)
        if named != group and named in observed.cluster.groups:
            heads, anew = observed.offsets.heads, made_anew(observed.cluster.chain(group), named)
            check_caught_up(heads.get(group, {}), heads.get(named, {}), named, observed.offsets.end, anew)
        wish = Wish(kind="promote", group=group, to=alias)
        return Forecast(
            **msgspec.structs.asdict(wish),
            moves=[],
            totals=totals_for([]),
            likely=Likely(),
            plan=plan_digest(wish, [], named=named),
        )

    async def delete(self, group: str, cause: Cause) -> None:
        """Deletes the group; its finished sessions stay in Kafka until their retention ends, and in the lake.

        Raises UnknownGroup, GroupInUse, GroupChanged, Unavailable.
        """
        self._view.group(group)
        try:
            await self._store.delete(group)
        except Unavailable as error:
            self._actions.report_deletion(group, cause, error=error)
            raise
        self._actions.report_deletion(group, cause)
        await self._view.look_again()

    def current(self, group: str) -> CurrentRow:
        """The sessions that are current in a group, or in the one that an alias names.

        Raises UnknownGroup, Unavailable.
        """
        return self.current_of(self._view.named(group))

    def current_of(self, name: str) -> CurrentRow:
        """The sessions that are current in the group of this name. Raises UnknownGroup, Unavailable."""
        cluster = self._view.served(with_offsets=False).observed.cluster
        self._view.group(name)
        starts = {other: one.start for other, one in cluster.groups.items() if one.start is not None}
        return current_in(
            name, cluster.chain(name), cluster.count, self._names, starts=starts, aliases=cluster.aliases
        )

    async def _carry_out(
        self, wish: Wish, cause: Cause, prepare: Callable[[], Awaitable[Effect]]
    ) -> Operation:
        async with self._making:
            operation = await self._operations.carry_out(wish, cause, prepare)
            await self._view.look_again()
        return operation

    async def _forecast(self, wish: RewindWish) -> tuple[RewindForecast, Mapping[int, StreamFacts]]:
        followed = self._view.group(wish.group)
        cluster = self._view.served(with_offsets=False).observed.cluster
        check_wish(wish, cluster.count)
        if followed.settings is None:
            raise UnknownGroup(f"group {wish.group!r} has no settings: no member of it has ever started")
        if not wish.alone and len(cluster.chain(wish.group)) >= MAX_CHAIN:
            raise RewindRefused(f"{MAX_CHAIN} groups up to {wish.group!r} follow each other; start `alone`")
        settings = new_settings(followed.settings, wish.settings)
        is_known = wish.as_ in cluster.groups or wish.as_ in cluster.aliases
        if is_known or not await self._source.is_unused(wish.as_):
            raise NameTaken(f"there is or was a group or alias {wish.as_!r}; choose another name")
        before = {
            stream: followed.start.offset(stream) if followed.start is not None else None
            for stream in range(cluster.count)
        }
        facts = await self._source.facts(wish.group, before, time_of_wish(wish.to))
        starts = [start_of(stream, wish, facts[stream]) for stream in range(cluster.count)]
        if not wish.alone:
            await together(self._check_sessions(wish.group, one, facts) for one in starts)
        return plan_of(wish, settings, starts), facts

    async def _check_sessions(self, group: str, found: StreamStart, facts: Mapping[int, StreamFacts]) -> None:
        """Raises RewindRefused if retention has removed sessions that reach the start."""
        stream, start, known = found.stream, found.start, facts[found.stream]
        if start is None:
            return
        cluster = self._view.served(with_offsets=False).observed.cluster
        new = GroupStart(follows=group, offsets={stream: start}, logs={stream: known.log_number})
        cuts = reaching_cuts([new, *cluster.chain(group)], stream)
        if known.head is None or start >= known.head.position:
            del cuts[0]  # nothing that the followed group itself has read reaches it
        for cut in cuts:
            if not await self._source.has_sessions_since(cut, found.stream, start):
                raise RewindRefused(
                    f"stream {found.stream}: retention has removed sessions of {cut.group!r} that may reach "
                    f"offset {start}; start later, or `alone`"
                )
