"""A whole Baton of real processes: a producer, members, a queue, control, a past, and open sessions."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from agent.tests.pipeline import until
from shared.model.names import Names
from tests.browser import burst, past, past_lake, past_queues
from tests.browser.past_runs import SCHEDULES, PastRuns
from tests.e2e.service import Service
from tests.servers import free_port

TOKEN = "0123456789abcdef-of-the-tests"
STREAMS = 12
MEMBERS = 3
VISITORS = 240
FRAGMENTS = 3
QUEUE = "mail"
ITEMS = 12
LETTERS = 3
"""Items of the queue that are rejected."""
LOAD, LOAD_EVERY_S = 5, 0.4
"""Sessions that the load sends at once, and how often."""
STEADY_S = 600.0
ANSWER_S = 60.0
"""A service may be starved for a while on a machine that runs other tests."""


class RunningBaton:
    """The processes. `url` is control's, `door` the producer's, `desk` the queue worker's."""

    def __init__(self, kafka: str, zookeeper: str, namespace: str, home: Path) -> None:
        self._home = home
        self._kafka, self._names = kafka, Names(namespace)
        self._environment = {
            "BATON_KAFKA": kafka,
            "BATON_ZOOKEEPER": zookeeper,
            "BATON_NAMESPACE": namespace,
            "BATON_STREAMS": str(STREAMS),
            "BATON_COMMIT_S": "0.2",
            "BATON_SETTLE_S": "1",
            "BATON_REFRESH_S": "0.1",
            "BATON_RUNS": str(home / "runs"),
            "BATON_LAKE": str(home / "lake"),
            "BATON_SCHEDULES": SCHEDULES,
        }
        self._lake = home / "lake" / namespace
        self._runs = PastRuns(home / "runs", time.time_ns() // 1_000_000)
        self.services: dict[str, Service] = {}
        self.door = f"http://127.0.0.1:{free_port()}"
        self.url = f"http://127.0.0.1:{free_port()}"
        self.desk = f"http://127.0.0.1:{free_port()}"
        self._environment["BATON_QUEUE_URL"] = self.desk

    @contextlib.contextmanager
    def running(self) -> Iterator[RunningBaton]:
        """Runs everything for the block; each visitor has an open session by then."""
        now_ms, runs = time.time_ns() // 1_000_000, contextlib.ExitStack()
        try:
            asyncio.run(past.write(self._kafka, self._names, STREAMS, now_ms))
            asyncio.run(past_queues.write(self._kafka, self._names, QUEUE, now_ms))
            past_lake.write(self._lake, STREAMS, now_ms)
            self._runs.write()
            runs.enter_context(self._runs.under_way())
            self._start("producer", self.door)
            for member in range(MEMBERS):
                self._start("consumer", f"http://127.0.0.1:{free_port()}", f"consumer-{member}")
            self._start("queue", self.desk)
            self.fill_queue()
            self._start("control", self.url)
            self.send(VISITORS)
            until(self._is_settled, self.streams)
            yield self
        finally:
            for service in reversed(self.services.values()):
                service.end()
            runs.close()

    def send(self, visitors: int) -> None:
        """Sends fragments of so many visitors, whose sessions stay open."""
        now = time.time_ns() // 1_000_000
        fragments = [
            {"key": f"visitor-{visitor}", "time": now + n, "id": f"{visitor}-{n}", "data": {"path": f"/{n}"}}
            for visitor in range(visitors)
            for n in range(FRAGMENTS)
        ]
        httpx.post(f"{self.door}/fragments", json=fragments, timeout=ANSWER_S).raise_for_status()

    def fill_queue(self) -> None:
        """Makes the queue, if there is none; some of its items are rejected, one is leased."""
        self._ask_queue("PUT", "", {"lease_s": 3_600})
        self.put_items(ITEMS)
        leased = self._ask_queue("POST", "/lease", {"max": LETTERS + 1})["items"]
        receipts = [item["receipt"] for item in leased[:LETTERS]]
        self._ask_queue("POST", "/reject", {"receipts": receipts, "why": "no such address"})
        until(lambda: self.queue()["dead"] == LETTERS, self.queue)

    def put_items(self, items: int) -> None:
        """Puts items into the queue."""
        self._ask_queue("POST", "/items", [{"data": {"to": f"visitor-{n}"}} for n in range(items)])

    def queue(self) -> dict[str, Any]:
        """The queue, as its worker shows it."""
        return self._ask_queue("GET", "", None)

    def _ask_queue(self, method: str, path: str, body: object) -> dict[str, Any]:
        answer = httpx.request(method, f"{self.desk}/queues/{QUEUE}{path}", json=body, timeout=ANSWER_S)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    @contextlib.contextmanager
    def load(self) -> Iterator[None]:
        """Sends sessions that end, during the block; some fragments have no readable time."""
        stopped = threading.Event()

        def send_on() -> None:
            for turn in itertools.count():
                now = time.time_ns() // 1_000_000
                fragments: list[dict[str, object]] = [
                    {
                        "key": f"load-{turn}-{n}",
                        "time": now + step,
                        "id": f"{turn}-{n}-{step}",
                        "data": {"path": f"/{n}"},
                    }
                    for n in range(LOAD)
                    for step in range(FRAGMENTS)
                ]
                fragments += [
                    {"key": f"load-{turn}-{n}", "end": True, "time": now + FRAGMENTS} for n in range(LOAD)
                ]
                fragments.append({"key": "bad", "time": "yesterday"})
                with contextlib.suppress(httpx.HTTPError):
                    httpx.post(f"{self.door}/fragments", json=fragments)
                if stopped.wait(LOAD_EVERY_S):
                    return

        sender = threading.Thread(target=send_on)
        sender.start()
        try:
            yield
        finally:
            stopped.set()
            sender.join()

    def locked_control(self) -> contextlib.AbstractContextManager[str]:
        """A second control, which demands TOKEN; its URL."""
        tokens = self._home / "tokens"
        tokens.write_text(f"{TOKEN} operate name=ann\n")
        return self._second_control("locked", BATON_CONTROL_TOKENS_FILE=str(tokens))

    @contextlib.contextmanager
    def control_without_past(self) -> Iterator[str]:
        """A second control, whose lake and runs are empty until its jobs have run; its URL."""
        more = {"BATON_LAKE": str(self._home / "new-lake"), "BATON_RUNS_AT_STOP": "end"}
        with self._second_control("new", **more) as url:
            yield url
            # in order, so that its driver ends too
            service = self.services["new"]
            service.signal(signal.SIGTERM)
            until(lambda: not service.is_running, service.tail)

    @contextlib.contextmanager
    def _second_control(self, name: str, **more: str) -> Iterator[str]:
        url = f"http://127.0.0.1:{free_port()}"
        own = {"BATON_RUNS": str(self._home / f"{name}-runs"), "BATON_SCHEDULES": ""}
        try:
            self._start("control", url, name=name, **own, **more)
            yield url
        finally:
            self.services.pop(name).end()

    def burst(self, stream: int) -> contextlib.AbstractContextManager[None]:
        """Gives one stream more than its owner can read, during the block."""
        return burst.burst(self._kafka, self._names, STREAMS, stream)

    def until_steady(self) -> None:
        """Waits until the first burst of fragments has left the rates."""
        until(
            lambda: self.streams()["totals"]["rate"] < STREAMS * 2 * past.RATE,
            self.streams,
            within_s=STEADY_S,
        )

    def streams(self) -> dict[str, Any]:
        """`GET /streams`."""
        answer: dict[str, Any] = httpx.get(f"{self.url}/streams", timeout=ANSWER_S).json()
        return answer

    def move(self, stream: int) -> str:
        """Starts to move a stream to another member; returns which."""
        owner = self.streams()["streams"][stream]["owner"]
        target = next(name for name in map("consumer-{}".format, range(MEMBERS)) if name != owner)
        wish: Mapping[str, object] = {"kind": "move", "stream": stream, "to": target}
        answers: list[httpx.Response] = []

        def is_accepted() -> bool:
            answers.append(httpx.post(f"{self.url}/operations", json=wish, timeout=ANSWER_S))
            return answers[-1].status_code == 202

        # the move before may still be under way
        until(is_accepted, lambda: answers[-1].text)
        return target

    def owners(self) -> set[str | None]:
        """Who owns streams."""
        return {row["owner"] for row in self.streams()["streams"]}

    def come_back(self, member: str) -> None:
        """Restarts a member that has left, and waits until it owns streams again."""
        service = self.services[member]
        service.end()
        service.start()
        until(self._is_settled, self.streams)

    def _is_settled(self) -> bool:
        answer = self.streams()
        if "totals" not in answer:
            return False  # control has not read everything yet
        owners = [row["owner"] for row in answer["streams"] if row["state"] == "running"]
        has_all = answer["totals"]["open_sessions"] == VISITORS
        return has_all and len(owners) == STREAMS and len(set(owners)) == MEMBERS

    def _start(self, service: str, url: str, member: str = "", *, name: str = "", **more: str) -> None:
        name = name or member or service
        environment = self._environment | {"BATON_PORT": url.rpartition(":")[2]} | more
        if member:
            environment["BATON_MEMBER"] = member
        self.services[name] = Service(f"services.{service}", self._home / f"{name}.log", environment)
        self.services[name].start()
        self._until_ready(name, url)

    def _until_ready(self, name: str, url: str) -> None:
        until(lambda: _is_ready(url), lambda: f"{name} is not ready: {self.services[name].tail()}")


def _is_ready(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/readyz").status_code == 200
    return False
