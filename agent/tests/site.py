"""A web site for the browser: serves pages, and forwards everything else to the producer.

`Site.faults` decides what happens to the next posts of fragments, one fault each: the site answers by itself,
the answer gets lost, or only some of the fragments are forwarded. The site records every post.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

STUB = "window.baton = window.baton || []; baton.end = data => baton.push(b => b.end(data));"
PAGE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<script>{stub}
window.events = [];
baton.on = (what, fragment, detail) => events.push([what, fragment.id, detail, performance.now()]);</script>
<script async src="{agent}" {settings}></script><script>{script}</script>"""
_NOT_FORWARDED = {
    "accept-encoding",
    "connection",
    "content-length",
    "date",
    "host",
    "server",
    "transfer-encoding",
}


@dataclass(frozen=True, slots=True)
class Answered:
    """The site answers; nothing reaches the producer."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The producer accepts the fragments, and its answer gets lost."""


@dataclass(frozen=True, slots=True)
class Partly:
    """Only the first `kept` fragments are stored, as if Kafka failed in between: 503 lists the others."""

    kept: int


@dataclass(frozen=True, slots=True)
class Posted:
    """A post of fragments; `at` is in seconds of `time.monotonic()`."""

    at: float
    content_type: str
    query: str
    origin: str
    ids: list[str]
    bytes: int


class Site:
    """Pages by path, in front of `producer` (a base URL)."""

    def __init__(self, producer: str) -> None:
        self.producer = producer
        self.pages: dict[str, str] = {}
        self.faults: deque[Answered | Lost | Partly] = deque()
        self.posts: list[Posted] = []
        self.is_down = False
        """Only pages are answered."""
        self.release = threading.Event()
        """Posts to /held are answered once it is set."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[Site]:
        """Serves while the block runs."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="site", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.release.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def page(self, path: str = "/", *, script: str = "", agent: str = "/agent.js", **settings: object) -> str:
        """Adds a page with the agent's tag (`batch_ms=5` → data-batch-ms); returns its URL."""
        attributes = " ".join(f'data-{name.replace("_", "-")}="{value}"' for name, value in settings.items())
        self.pages[path] = PAGE.format(stub=STUB, agent=agent, settings=attributes, script=script)
        return self.url + path

    def ids(self) -> list[str]:
        """The ids of all fragments posted so far, in order."""
        return [one for post in self.posts for one in post.ids]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                """Logs nothing."""

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path in site.pages:
                    self.reply(200, {"content-type": "text/html"}, site.pages[path].encode())
                elif site.is_down:
                    self.close_connection = True
                else:
                    self.reply(*site._forward("GET", self.path, dict(self.headers), b""))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if self.path == "/held":
                    site.release.wait(60)
                    self.reply(204, {}, b"")
                    return
                answer = site._receive(self.path, dict(self.headers), body)
                if answer is not None:
                    self.reply(*answer)

            def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
                with contextlib.suppress(OSError):  # the page may be gone
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

        return Handler

    def _receive(
        self, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes] | None:
        """Records a post of fragments and returns its answer; None: close the connection without one."""
        named = {name.lower(): value for name, value in headers.items()}
        fragments = json.loads(body)
        self.posts.append(
            Posted(
                at=time.monotonic(),
                content_type=named.get("content-type", ""),
                query=path.partition("?")[2],
                origin=named.get("origin", ""),
                ids=[fragment["id"] for fragment in fragments],
                bytes=len(body),
            )
        )
        if self.is_down:
            return None
        match self.faults.popleft() if self.faults else None:
            case Answered(status=status, headers=given, body=given_body):
                return status, given, json.dumps(given_body).encode()
            case Lost():
                self._forward("POST", path, headers, body)
                return None
            case Partly(kept=kept):
                some = json.dumps(fragments[:kept]).encode()
                self._forward("POST", path, headers, some)
                unstored = list(range(kept, len(fragments)))
                problem = {"accepted": kept, "unstored": unstored, "rejected": []}
                return 503, {"retry-after": "1"}, json.dumps(problem).encode()
        return self._forward("POST", path, headers, body)

    def _forward(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        passed = {name: value for name, value in headers.items() if name.lower() not in _NOT_FORWARDED}
        passed["accept-encoding"] = "identity"
        answer = httpx.request(method, self.producer + path, headers=passed, content=body, timeout=30)
        back = {name: value for name, value in answer.headers.items() if name.lower() not in _NOT_FORWARDED}
        return answer.status_code, back, answer.content
