"""Serves the agent for web pages: its script, the script's source, and a page to try it.

The files are in `agent/` and are read once. Their `ETag` is a digest, so a browser only asks whether they
have changed. `make agent` minifies `agent.js` to `agent.min.js`. The page to try it names the command that
shows the delivered sessions. Used by `app.py`.
"""

from __future__ import annotations

import gzip
import hashlib
import html
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response

from shared.service.loopback import is_loopback

FOLDER = Path(__file__).parents[3] / "agent"
MAX_AGE_S = 3600
"""How long a page may run the old agent after an upgrade of the producer."""
COMMAND = b"{{command}}"
"""Its place in the page."""
_SCRIPT = "text/javascript; charset=utf-8"
_PAGE = "text/html; charset=utf-8"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A served file: its URL path, its name in FOLDER, and how long a browser may use it without asking."""

    path: str
    name: str
    media_type: str
    max_age_s: int
    summary: str


FILES = (
    StaticFile("/agent.js", "agent.min.js", _SCRIPT, MAX_AGE_S, "The agent for web pages"),
    StaticFile("/agent.source.js", "agent.js", _SCRIPT, 0, "The agent, readable"),
    StaticFile("/try", "try.html", _PAGE, 0, "A page that uses the agent"),
    StaticFile("/try.js", "try.js", _SCRIPT, 0, "That page's script"),
)


def install_agent(app: FastAPI, *, kafka: str, namespace: str) -> None:
    """Adds a route for each of FILES; `kafka` and `namespace` are those of the producer."""
    command = html.escape(sessions_command(kafka, namespace)).encode()
    for file in FILES:
        content = (FOLDER / file.name).read_bytes()
        if file.media_type == _PAGE:
            content = content.replace(COMMAND, command)
        kind = file.media_type.partition(";")[0]
        app.add_api_route(
            file.path,
            _answer_with(file, content),
            tags=["agent"],
            summary=file.summary,
            response_class=Response,
            responses={
                200: {"description": "The file", "content": {kind: {"schema": {"type": "string"}}}},
                304: {"description": "The browser already has it"},
            },
        )


def sessions_command(kafka: str, namespace: str) -> str:
    """The command that follows the delivered sessions.

    It names the addresses of a Kafka on this machine, whose ports may be shifted. It names no others:
    strangers may read the page. A namespace is no address.

    >>> sessions_command("127.0.0.1:9192", ""), sessions_command("kafka:9092", "x")
    ('baton sessions -f --kafka 127.0.0.1:9192', 'baton sessions -f --namespace x')
    """
    address = f" --kafka {kafka}" if all(map(_is_near, kafka.split(","))) else ""
    return f"baton sessions -f{address}" + (f" --namespace {namespace}" if namespace else "")


def _is_near(address: str) -> bool:
    return is_loopback(address.strip().rpartition(":")[0])


def _answer_with(file: StaticFile, content: bytes) -> Callable[[Request], Any]:
    packed = gzip.compress(content, mtime=0)
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {
        # script tags with `crossorigin` and `integrity` need it
        "Access-Control-Allow-Origin": "*",
        "Cache-Control": f"public, max-age={file.max_age_s}" if file.max_age_s else "no-cache",
        "Cross-Origin-Resource-Policy": "cross-origin",
        "ETag": f"W/{tag}",  # weak: compressed and plain bytes differ
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    if file.media_type == _PAGE:
        headers["Content-Security-Policy"] = _POLICY

    async def answer(request: Request) -> Response:
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            packed_headers = headers | {"Content-Encoding": "gzip"}
            return Response(packed, media_type=file.media_type, headers=packed_headers)
        return Response(content, media_type=file.media_type, headers=headers)

    answer.__name__ = f"get_{file.name.replace('.', '_')}"
    return answer
