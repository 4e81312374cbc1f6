"""Watches the next members by connections to their ports, and ends the processes that have been killed.

The shell around `core/ownership/watching.py`: it keeps one connection to each of them, makes it anew when it
breaks, and deletes the node of one that the evidence makes a suspect. The next views show that to all members
alike.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import msgspec

from services.consumer.core.ownership.watching import Evidence, watched_by
from services.consumer.ports import Coordinator, Listeners
from shared.errors import Unavailable
from shared.model.cluster import MemberNode, View

logger = logging.getLogger(__name__)


class Neighbours:
    """The members that one member watches; `watch` each view, `cancel` in the end.

    `suspected` counts the processes that it has ended.
    """

    def __init__(self, coordinator: Coordinator, listeners: Listeners) -> None:
        self.suspected = 0
        self._coordinator = coordinator
        self._listeners = listeners
        self._watched: dict[str, tuple[MemberNode, asyncio.Task[None]]] = {}

    def __repr__(self) -> str:
        return f"<Neighbours of {self._coordinator.member}: {sorted(self._watched)}>"

    def watch(self, view: View, tasks: asyncio.TaskGroup) -> None:
        """Watches whom this view names, in tasks of this group."""
        me = self._coordinator.member
        wanted = {name: _process(view.members[name]) for name in watched_by(me, view.members)}
        for name in [name for name, (node, _) in self._watched.items() if wanted.get(name) != node]:
            self._watched.pop(name)[1].cancel()
        for name in wanted.keys() - self._watched.keys():
            task = tasks.create_task(self._watch(name, wanted[name]), name=f"watch {name}")
            self._watched[name] = wanted[name], task

    def cancel(self) -> None:
        """Watches no member any more."""
        for _, task in self._watched.values():
            task.cancel()
        self._watched.clear()

    async def _watch(self, name: str, process: MemberNode) -> None:
        evidence = Evidence()
        while True:
            connected = partial(self._note_connected, evidence)
            match await self._listeners.hold(process.address, connected):
                case "refused":
                    evidence.refused(self._now_ms())
                case "broke":
                    evidence.broke(self._now_ms())
                case "failed":
                    evidence.failed()
            if evidence.is_suspect:
                await self._end(name, process)
            await asyncio.sleep(evidence.pause_ms / 1000)

    def _note_connected(self, evidence: Evidence) -> None:
        evidence.connected(self._now_ms())

    def _now_ms(self) -> int:
        return int(self._coordinator.now_s() * 1000)

    async def _end(self, name: str, process: MemberNode) -> None:
        try:
            ended = await self._coordinator.end_process(name, process)
        except Unavailable as error:  # as long as it is refused, the next attempt follows
            logger.warning("suspect not ended", extra={"suspect": name, "why": error.detail})
            return
        if ended:
            self.suspected += 1
            logger.warning("member suspected", extra={"suspect": name, "address": process.address})


def _process(node: MemberNode) -> MemberNode:
    """The node without what changes while its process lives."""
    return msgspec.structs.replace(node, state="active")
