"""The pages of operations: what one would do, its confirmation, and how it goes on."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, HTTPException, Request, Response

from services.control.core.causes import cause_of
from services.control.core.operations.wishes import Wish
from services.control.http.api.access.caller import caller_of
from services.control.http.api.operations import OperationRequest, wish_of
from services.control.http.api.pages import MAX_REASON
from services.control.http.console.live.work import drawn_of
from services.control.http.console.pages.forms import led_to, read_form, refused
from services.control.http.console.pages.routes import Console, Group
from services.control.http.console.shown.actions import curl, dry_run, title_of
from services.control.http.console.shown.following import following
from services.control.http.console.shown.ownership import ownership_map
from services.control.live.acts.operations import Operations
from shared.errors import BatonError
from shared.model.names import DEFAULT_GROUP

LISTED: Final = 50
"""Operations of a table; the API has all."""
ActionKind = Literal["move", "unpin", "drain", "undrain", "rebalance", "pause", "resume"]
"""What the console offers. A rewind and a promotion are asked for over the API and on the command line."""
NEEDS: Final[Mapping[ActionKind, tuple[str, ...]]] = {
    "move": ("stream", "to"),
    "drain": ("member",),
    "rebalance": (),
    "unpin": ("stream",),
    "undrain": ("member",),
    "pause": (),
    "resume": (),
}
"""What an operation needs to know besides its group."""
TITLES: Final[Mapping[ActionKind, str]] = {
    "move": "Move a stream",
    "drain": "Drain a member",
    "rebalance": "Rebalance",
    "unpin": "Unpin a stream",
    "undrain": "Undrain a member",
    "pause": "Pause the group",
    "resume": "Resume the group",
}
CANCELLED_AS: Final = frozenset({"move", "unpin", "drain", "rebalance"})
"""Operations that can be cancelled; each other one has an opposite."""


class ActionPages:
    """What the pages need of the operations."""

    def __init__(self, console: Console, operations: Operations) -> None:
        self._console = console
        self._operations = operations
        self._read = console.scene

    def __repr__(self) -> str:
        return f"<ActionPages of {self._console!r}>"

    def ask(self, request: Request, kind: ActionKind) -> Response:
        """The first two steps: what would happen, and the form that confirms it."""
        fields = {name: value.strip() for name, value in request.query_params.items() if value.strip()}
        scene = self._read(fields.get("group", DEFAULT_GROUP))
        common, pages = self._console.common(scene, "ownership"), self._console.pages
        if not all(name in fields for name in NEEDS[kind]):
            return pages.page(
                request,
                "choose.html",
                **common,
                kind=kind,
                title=TITLES[kind],
                needs=NEEDS[kind],
                fields=fields,
                members=[row.id for row in scene.members if (row.state == "draining") is (kind == "undrain")],
                streams=len(scene.rows),
            )
        wish = wish_in(kind, fields)
        try:
            found = self._operations.forecast(wish)
        except BatonError as error:
            return refused(pages, request, error, common, what=f"{title_of(wish)}: this cannot be done")
        return pages.page(
            request,
            "action.html",
            **common,
            wish=wish,
            found=found,
            dry=dry_run(found, scene),
            may_act=self._console.may(request, "operate"),
            key=secrets.token_hex(8),
            most_reason=MAX_REASON,
        )

    async def start(self, request: Request) -> Response:
        """Starts the operation that the form confirms, and leads to its page."""
        fields = await read_form(request)
        wish = wish_in(fields.get("kind", ""), fields)
        reason = fields.get("reason", "")[:MAX_REASON]
        # sent twice, the form still begins one operation
        cause = cause_of(caller_of(request).name, reason, fields.get("key"), wish)
        try:
            operation = await self._operations.start(wish, cause, if_plan=fields.get("if_plan"))
        except BatonError as error:
            common = self._console.common(self._read(wish.group), "ownership")
            what = f"{title_of(wish)}: nothing was done"
            return refused(self._console.pages, request, error, common, what=what, back=path_of(wish))
        return led_to(f"/console/operations/{operation.id}")

    async def cancel(self, request: Request, operation_id: str) -> Response:
        """Cancels the operation, and leads to its page. Raises UnknownOperation."""
        operation, fields = self._operations.operation_of(operation_id), await read_form(request)
        cause = cause_of(caller_of(request).name, fields.get("reason", "")[:MAX_REASON], None, None)
        path = f"/console/operations/{operation_id}"
        try:
            await self._operations.cancel(operation_id, cause)
        except BatonError as error:
            common = self._console.common(self._read(operation.group), "ownership")
            what = f"{title_of(operation)}: not cancelled"
            return refused(self._console.pages, request, error, common, what=what, back=path)
        return led_to(path)

    def list(self, request: Request, group: str) -> Response:
        """The group's operations, newest first."""
        scene = self._read(group)
        found = [one for one in self._operations.all() if one.group == group]
        return self._console.pages.page(
            request,
            "operations.html",
            **self._console.common(scene, "ownership", live="&work=operation"),
            operations=[(one, title_of(one), drawn_of(one)) for one in found[:LISTED]],
            total=len(found),
        )

    def follow(self, request: Request, operation_id: str) -> Response:
        """The third step: the operation as it goes on. Raises UnknownOperation."""
        operation = self._operations.detail(operation_id)
        scene = self._read(operation.group)
        return self._console.pages.page(
            request,
            "operation.html",
            **self._console.common(scene, "ownership", live="&work=operation"),
            operation=operation,
            drawn=drawn_of(operation),
            follow=following(operation),
            map=ownership_map(scene, "lag"),
            may_cancel=not operation.has_ended
            and operation.kind in CANCELLED_AS
            and self._console.may(request, "operate"),
            most_reason=MAX_REASON,
            curl=curl("GET", f"/operations/{operation_id}"),
            baton="baton operations",
        )


def wish_in(kind: str, fields: Mapping[str, str]) -> Wish:
    """The operation that a form or a query asks for. Raises HTTPException (422) if it is none."""
    wanted: dict[str, Any] = {
        name: fields[name] for name in ("stream", "to", "member", "group") if name in fields
    }
    try:
        return wish_of(msgspec.convert({"kind": kind, **wanted}, OperationRequest, strict=False))
    except msgspec.ValidationError as error:
        raise HTTPException(422, str(error)) from None


def path_of(wish: Wish) -> str:
    """The page of its dry run."""
    fields = {name: getattr(wish, name) for name in ("stream", "to", "member", "group")}
    query = urlencode({name: value for name, value in fields.items() if value is not None})
    return f"/console/actions/{wish.kind}?{query}"


def action_pages_routes(console: Console, pages: ActionPages) -> APIRouter:
    """The routes of these pages."""
    routes = console.pages.router()

    @routes.get("/console/actions/{kind}")
    async def ask(request: Request, kind: ActionKind) -> Response:
        return pages.ask(request, kind)

    @routes.post("/console/operations")
    async def start(request: Request) -> Response:
        return await pages.start(request)

    @routes.get("/console/operations")
    async def listed(request: Request, group: Group = DEFAULT_GROUP) -> Response:
        return pages.list(request, group)

    @routes.get("/console/operations/{operation_id}")
    async def follow(request: Request, operation_id: str) -> Response:
        return pages.follow(request, operation_id)

    @routes.post("/console/operations/{operation_id}/cancel")
    async def cancel(request: Request, operation_id: str) -> Response:
        return await pages.cancel(request, operation_id)

    return routes
