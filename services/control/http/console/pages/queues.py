"""The pages of queues: all of them, one of them, and the dry run and confirmation of what is done to one."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from services.control.core.causes import cause_of
from services.control.core.events.recent_events import EventFilter
from services.control.core.queues import Act, QueueOutcomeUnknown, QueueRow
from services.control.http.api.access.caller import Role, caller_of
from services.control.http.api.pages import MAX_REASON
from services.control.http.console.pages.forms import led_to, read_form, refused
from services.control.http.console.pages.routes import Console, Group
from services.control.http.console.rendering import reason_of
from services.control.http.console.shown.actions import Calls, curl
from services.control.http.console.shown.overview import Tile, range_text
from services.control.http.console.shown.queues import (
    DID,
    LetterLine,
    letter_line,
    path_of,
    queue_cells,
    queue_dry_run,
    queue_sentence,
    settings_facts,
    spark,
    title_of,
)
from services.control.http.console.words import span
from services.control.live.queues.history import QueueHours
from services.control.live.queues.queues import Queues
from shared.errors import BatonError, Unavailable
from shared.model.events import Event
from shared.model.names import DEFAULT_GROUP

PAGE: Final = 100
"""Queues of a table."""
LETTERS: Final = 10
"""Dead letters of a queue's page; the API shows more."""
ACTED: Final = 5
ROLES: Final[dict[Act, Role]] = {"redrive": "operate", "purge": "admin"}
"""Who may do it, as the gate decides."""
MAYBE_DONE: Final = "It may have been done all the same: look at the queue before you try again."


class QueuePages:
    """What the pages need of the queues."""

    def __init__(self, console: Console, queues: Queues, hours: QueueHours) -> None:
        self._console = console
        self._queues = queues
        self._hours = hours

    def __repr__(self) -> str:
        return f"<QueuePages of {self._queues!r}>"

    def listed(self, request: Request, group: str, find: str, offset: int) -> Response:
        """All queues by name. Raises QueuesUnavailable until a worker has answered."""
        rows = self._queues.rows() if self._queues.is_named else []
        found = [row for row in rows if find in row.queue]
        shown = found[offset : offset + PAGE]
        return self._console.pages.page(
            request,
            "queues.html",
            **self._common(group),
            is_named=self._queues.is_named,
            is_silent=self._queues.is_silent,
            find=find,
            queues=[(row, queue_cells(row), spark(self._hours.of(row.queue))) for row in shown],
            total=len(found),
            offset=offset,
            page=PAGE,
        )

    async def show(self, request: Request, queue: str, group: str, did: Act | None) -> Response:
        """A queue. Raises UnknownQueue, QueuesUnavailable."""
        row, common = self._queues.row(queue), self._common(group)
        letters, why = await self._letters(row, common["now_ms"])
        return self._console.pages.page(
            request,
            "queue.html",
            **common,
            row=row,
            cells=queue_cells(row),
            sentence=queue_sentence(row),
            settings=settings_facts(row),
            tiles=self._tiles(queue),
            letters=letters,
            letters_why=why,
            did=DID[did] if did else "",
            acted=self._acted(queue),
            may={act: self._console.may(request, role) for act, role in ROLES.items()},
        )

    async def ask(self, request: Request, queue: str, act: Act, group: str) -> Response:
        """What the act would do, and the form that confirms it. Raises UnknownQueue, QueuesUnavailable."""
        row, common = self._queues.row(queue), self._common(group)
        try:
            change = await self._queues.forecast(queue, act)
        except BatonError as error:
            return refused(
                *(self._console.pages, request, error, common),
                what=f"{title_of(act, queue)}: this cannot be done",
                back=path_of(queue),
            )
        return self._console.pages.page(
            request,
            "queue_action.html",
            **common,
            queue=queue,
            act=act,
            change=change,
            dry=queue_dry_run(change, row),
            calls=Calls(
                curl=curl("POST", f"/queues/{queue}/{act}", {"reason": "…"}),
                baton=f'baton queue {act} {queue} --reason "…"',
            ),
            may_act=self._console.may(request, ROLES[act]),
            role=ROLES[act],
            key=secrets.token_hex(8),
            most_reason=MAX_REASON,
        )

    async def act(self, request: Request, queue: str, act: Act) -> Response:
        """Does what the form confirms, and leads to the queue."""
        fields = await read_form(request)
        reason = fields.get("reason", "")[:MAX_REASON]
        # sent twice, the form still acts once
        cause = cause_of(caller_of(request).name, reason, fields.get("key"), [queue, act])
        try:
            await self._queues.act(queue, act, cause)
        except BatonError as error:
            common = self._common(fields.get("group", DEFAULT_GROUP))
            is_open = isinstance(error, QueueOutcomeUnknown)
            return refused(
                *(self._console.pages, request, error, common | ({"after": MAYBE_DONE} if is_open else {})),
                what=f"{title_of(act, queue)}: {'no answer' if is_open else 'nothing was done'}",
                back=path_of(queue),
            )
        query = urlencode({"group": fields.get("group", DEFAULT_GROUP), "did": act})
        return led_to(f"{path_of(queue)}?{query}")

    async def _letters(self, row: QueueRow, now_ms: int) -> tuple[list[LetterLine], str]:
        """The oldest dead letters, and why they are not known."""
        if row.dead is None:
            return [], "no queue worker answers"
        try:
            found = await self._queues.letters(row.queue, LETTERS) if row.dead else []
        except Unavailable as error:
            return [], reason_of(error)
        return [letter_line(one, now_ms) for one in found], ""

    def _common(self, group: str) -> dict[str, Any]:
        """What `base.html` needs. Raises UnknownGroup, Unavailable."""
        return self._console.common(self._console.scene(group), "queues")

    def _tiles(self, queue: str) -> list[Tile]:
        history = self._hours.of(queue)
        oldest_s = max((age for age in history.oldest_age_s if age is not None), default=None)
        return [
            Tile(label="Items to be done", series="depth", range=range_text(history.depth), has_value=False),
            Tile(label="Dead letters", series="dead", range=range_text(history.dead), has_value=False),
            Tile(
                label="Age of the oldest item",
                series="oldest_age_s",
                range=f"at most {span(oldest_s * 1000)}" if oldest_s else "",
                has_value=False,
                unit_ms=1000,
            ),
        ]

    def _acted(self, queue: str) -> list[Event]:
        """What control did to the queue lately, newest first."""
        recent = self._console.feed.recent_events
        found = recent.newest(recent.next_id, EventFilter(kinds=frozenset({"action"})))
        return [one.event for one in reversed(found) if one.event.queue == queue][:ACTED]


def queue_pages_routes(console: Console, pages: QueuePages) -> APIRouter:
    """The routes of these pages."""
    routes = console.pages.router()

    @routes.get("/console/queues")
    async def listed(
        request: Request,
        group: Group = DEFAULT_GROUP,
        find: Annotated[str, Query(max_length=100)] = "",
        offset: Annotated[int, Query(ge=0)] = 0,
    ) -> Response:
        return pages.listed(request, group, find.strip(), offset)

    @routes.get("/console/queues/{queue}")
    async def show(
        request: Request, queue: str, group: Group = DEFAULT_GROUP, did: Act | None = None
    ) -> Response:
        return await pages.show(request, queue, group, did)

    @routes.get("/console/queues/{queue}/{act}")
    async def ask(request: Request, queue: str, act: Act, group: Group = DEFAULT_GROUP) -> Response:
        return await pages.ask(request, queue, act, group)

    @routes.post("/console/queues/{queue}/purge")
    async def purge(request: Request, queue: str) -> Response:
        return await pages.act(request, queue, "purge")

    @routes.post("/console/queues/{queue}/redrive")
    async def redrive(request: Request, queue: str) -> Response:
        return await pages.act(request, queue, "redrive")

    return routes
