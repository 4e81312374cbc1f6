"""An in-memory producer and control behind httpx's MockTransport, with scripted faults."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
import socket
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import httpx
import msgspec
import uvicorn
from click.testing import CliRunner, Result

from cli.http.client import BatonClient
from cli.http.requests import Requests
from cli.importing.reading.lines import LineReader
from cli.main import cli
from shared.model.fragments import FragmentRejected, parse_fragment, time_of
from shared.model.routing import StreamTable, initial_table

Answer = Callable[[httpx.Request], Awaitable[httpx.Response]]
FAULTS = ("503", "429", "partly stored, then 503", "dropped before", "stored, then dropped")
MAX_REQUEST_BYTES = 1_048_576


async def forward(request: httpx.Request, http: httpx.AsyncClient) -> httpx.Response:
    """The response of the service behind `http` to a command's request."""
    return await http.request(
        request.method,
        request.url.raw_path.decode(),
        content=request.content,
        headers={"content-type": "application/json"},
    )


class InMemoryProducer:
    """Accepts fragments like the real producer; `logs[stream]` holds what "Kafka" has stored.

    `faults` has one entry per request, "" for none; after the last one no more faults occur.
    """

    def __init__(
        self,
        streams: int = 24,
        faults: Iterable[str] = (),
        rng: random.Random | None = None,
        max_request_bytes: int = MAX_REQUEST_BYTES,
    ) -> None:
        self.table: StreamTable = initial_table(streams)
        self.cluster = ""
        self.logs: dict[int, list[bytes]] = defaultdict(list)
        self.requests: list[int] = []
        self.types: list[str] = []
        self.overlapped = False
        self._busy: set[int] = set()
        self._faults = iter(faults)
        self._rng = rng or random.Random(0)
        self._max_request_bytes = max_request_bytes

    def client(self, patience_s: float = 1e9) -> BatonClient:
        """A client of this producer that never really sleeps."""
        return client_of(self.answer, patience_s, sleep=no_sleep)

    async def answer(self, request: httpx.Request) -> httpx.Response:
        """The response to a request, after some turns of the event loop, so that requests can overlap."""
        if request.url.path == "/table":
            headers = {"baton-cluster": self.cluster} if self.cluster else {}
            return httpx.Response(200, content=self.table.encode(), headers=headers)
        if request.url.path == "/markers":
            if "time" not in msgspec.json.decode(request.content):
                return problem(422, "the request has faults")
            places = [{"stream": n, "offset": len(self.logs[n])} for n in range(self.table.count)]
            for stream in range(self.table.count):
                self.logs[stream].append(request.content)
            return httpx.Response(200, json={"markers": places})
        is_lines = request.headers["content-type"] == "application/x-ndjson"
        fragments = request.content.split(b"\n") if is_lines else [request.content]
        busy = {self._stream_of(raw) for raw in fragments}
        self.overlapped |= bool(busy & self._busy)
        self._busy |= busy
        try:
            for _ in range(self._rng.randrange(5)):
                await asyncio.sleep(0)
            return self._store(request, fragments)
        finally:
            self._busy -= busy

    def _store(self, request: httpx.Request, fragments: list[bytes]) -> httpx.Response:
        self.requests.append(len(fragments))
        self.types.append(request.headers["content-type"])
        fault = next(self._faults, "")
        if fault == "dropped before":
            raise httpx.ConnectError("refused", request=request)
        if fault in ("503", "429"):
            return problem(int(fault), "not now", {"retry-after": "0"})
        if len(request.content) > self._max_request_bytes:
            return problem(413, "too large")
        stored_streams = set(range(self.table.count))
        if fault.startswith("partly"):
            stored_streams = {n for n in stored_streams if self._rng.random() < 0.5}
        rejected: list[dict[str, Any]] = []
        for index, raw in enumerate(fragments):
            try:
                time_of(parse_fragment(raw))
            except FragmentRejected as error:
                if error.reason == "malformed" and self.types[-1] == "application/json":
                    return problem(400, "the body is not JSON")
                rejected.append({"index": index, "reason": error.reason, "detail": error.detail})
                continue
            if (stream := self._stream_of(raw)) in stored_streams:
                self.logs[stream].append(raw)
        if fault == "stored, then dropped":
            raise httpx.ReadError("reset", request=request)
        if fault.startswith("partly"):
            return problem(503, "some are not stored", {"retry-after": "0"})
        accepted = len(fragments) - len(rejected)
        body = {"accepted": accepted, "rejected": rejected}
        return httpx.Response(422 if rejected and not accepted else 200, json=body)

    def _stream_of(self, raw: bytes) -> int:
        try:
            return self.table.stream_for(parse_fragment(raw).key.encode())
        except FragmentRejected:
            return 0


def without_repeats(stored: Iterable[bytes]) -> list[dict[str, Any]]:
    """The fragments as a consumer sees them, which drops repeated ids."""
    found: dict[str, dict[str, Any]] = {}
    for raw in stored:
        fragment = msgspec.json.decode(raw)
        found.setdefault(fragment["id"], fragment)
    return list(found.values())


def problem(
    status: int, detail: str, headers: dict[str, str] | None = None, **members: Any
) -> httpx.Response:
    """A problem document."""
    content = msgspec.json.encode({"type": "urn:baton:x", "status": status, "detail": detail, **members})
    return httpx.Response(
        status, content=content, headers={"content-type": "application/problem+json", **(headers or {})}
    )


async def no_sleep(_: float) -> None:
    """Yields to other tasks without waiting."""
    await asyncio.sleep(0)


def client_of(answer: Any, patience_s: float = 0, **more: Any) -> BatonClient:
    """A client of a service that gives these responses."""
    http = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://service")
    return BatonClient(Requests(http, patience_s=patience_s, rng=random.Random(0), **more))


def baton(answer: Answer, *arguments: str) -> Result:
    """Runs a command whose `--url` is a service that gives these responses."""
    with served(answer) as url:
        return CliRunner().invoke(cli, [*arguments, "--url", url])


def reader_of(raws: Iterable[bytes]) -> LineReader:
    """A log with these lines."""
    return LineReader(io.BytesIO(b"\n".join(raws)), io.BytesIO(), None)


class InMemoryControl:
    """Answers reads from `answers[path]`, and runs of jobs from scripted lists of states."""

    def __init__(self, answers: dict[str, Any] | None = None) -> None:
        self.answers = answers or {}
        self.scripts: dict[str, list[dict[str, Any]]] = {}
        self.started: list[tuple[str, str, Any]] = []
        self.queries: list[tuple[str, dict[str, str]]] = []

    async def answer(self, request: httpx.Request) -> httpx.Response:
        """The response to a request; lists are paged by `limit` and `after`."""
        path = request.url.path
        self.queries.append((path, dict(request.url.params)))
        if request.method == "POST" and path.endswith("/runs"):
            job = path.split("/")[2]
            self.started.append((job, request.url.params["group"], msgspec.json.decode(request.content)))
            return httpx.Response(202, json={"id": job, "state": "starting"})
        if path.startswith("/runs/") and path not in self.answers:
            script = self.scripts[path.removeprefix("/runs/")]
            return httpx.Response(200, json=script.pop(0) if len(script) > 1 else script[0])
        if path not in self.answers:
            return problem(404, f"there is no {path}")
        return httpx.Response(200, json=self._page(self.answers[path], request.url.params))

    def _page(self, answer: dict[str, Any], params: httpx.QueryParams) -> dict[str, Any]:
        name = next((name for name, value in answer.items() if isinstance(value, list)), None)
        if name is None or "limit" not in params:
            return answer
        cursor = {"streams": "stream", "groups": "name"}.get(name, "id")
        start = 0
        if "after" in params:
            start = [str(row[cursor]) for row in answer[name]].index(params["after"]) + 1
        return answer | {name: answer[name][start : start + int(params["limit"])]}


@contextlib.contextmanager
def served(answer: Answer) -> Iterator[str]:
    """The URL of a real HTTP server with these responses, in a thread, during the block."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        url = f"http://fake{scope['path']}?{scope['query_string'].decode()}"
        request = httpx.Request(scope["method"], url, headers=scope["headers"], content=body)
        response = await answer(request)
        headers = [(k.lower(), v) for k, v in response.headers.raw]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": response.content})

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
