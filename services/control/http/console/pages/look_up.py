"""The console's view of sessions: finds a key or a session, and looks into a stream."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from services.control.http.console.pages.routes import Console, Group
from services.control.http.console.rendering import reason_of
from services.control.http.console.shown.scene import Scene
from services.control.http.console.shown.sessions import (
    ENDED_BY,
    finished_sentence,
    fragment_lines,
    life_line,
    moved_words,
    moves_of,
    open_sentence,
)
from services.control.live.look_ups import UnknownSession
from shared.errors import BatonError, Unavailable
from shared.model.names import DEFAULT_GROUP

SESSIONS: Final = 20
RECORDS: Final = 20
_ID: Final = re.compile(r"[0-9a-f]{32}")

Values = dict[str, Any]


def look_up_routes(console: Console) -> APIRouter:
    """The route of the view."""
    routes = console.pages.router()
    read = console.scene

    @routes.get("/console/sessions")
    async def sessions(
        request: Request,
        group: Group = DEFAULT_GROUP,
        find: Annotated[str, Query(max_length=256)] = "",
        stream: Annotated[str, Query(max_length=9)] = "",
        before: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None,
        after: Annotated[str, Query(max_length=100)] = "",
    ) -> Response:
        scene = read(console.view.named(group))
        number = int(stream) if stream.isdecimal() else None
        values: Values = {"find": find, "stream": number, "session": None, "found": None}
        values |= {"keys": None, "log": None, "sentence": ""}
        try:
            if find:
                values |= await _found(console, scene, find, after)
            elif number is not None:
                values |= await _stream(console, scene, number, before)
        except BatonError as error:
            values["sentence"] = f"Not found: {reason_of(error)}."
        return console.pages.page(
            request, "sessions.html", **console.common(scene, "sessions"), **values, ended_by=ENDED_BY
        )

    return routes


async def _found(console: Console, scene: Scene, text: str, after: str) -> Values:
    """A session, if the text is the id of one, else a key."""
    if _ID.fullmatch(text):
        try:
            session = await console.look_up.session(text)
        except (UnknownSession, Unavailable):
            pass  # it may be a key
        else:
            lines = fragment_lines(session.data or [], session.fragments, scene.now_ms)
            return {"session": session, "lines": lines}
    found = await console.look_up.key(scene.group, text, limit=SESSIONS, after=after)
    values: Values = {
        "found": found,
        "open_sentence": open_sentence(found),
        "finished_sentence": finished_sentence(found),
    }
    if found.open is None:
        return values
    owners = console.view.stream(scene.group, found.stream).owners
    return values | {
        "life": life_line(found.open, found.data or [], owners, scene.now_ms),
        "moved": moved_words(moves_of(found.open, owners), scene.now_ms),
        "lines": fragment_lines(found.data or [], found.open.fragments, scene.now_ms),
    }


async def _stream(console: Console, scene: Scene, stream: int, before: int | None) -> Values:
    """The newest records of a stream, and its heaviest keys."""
    keys = await console.look_up.keys(scene.group, stream)
    try:
        return {"keys": keys, "log": await console.look_up.fragments(stream, RECORDS, before)}
    except Unavailable as error:
        return {"keys": keys, "log_sentence": f"The log cannot be read: {error.reason}."}
