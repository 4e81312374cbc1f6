"""What control costs with 1,000 streams on 50 members, and how fast it answers.

`python -m bench.console`. Control is a process of its own, on a cluster in memory that changes 200 streams a
second (`bench/simulated_control.py`). Its CPU time includes what the simulated cluster costs.
"""

from __future__ import annotations

import contextlib
import gzip
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import httpx
from rich.console import Console
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from agent.tests.chromium import OPTIONS, find_programs
from bench.__main__ import table
from bench.idle import cpu_s
from bench.machine import machine
from bench.report import Row
from services.control.http.console.rendering import PACKED
from tests.servers import free_port

STREAMS, MEMBERS, CHANGES_PER_S = 1_000, 50, 200
VIEWERS = 20
ROWS = ",".join(map(str, range(50)))
SETTLE_S = 25.0
"""The windows of lag must be full: a short history is cheaper to judge."""
MEASURED_S = 30.0
ANSWERS = 100
PAINTS = 5
READY_S = 120.0
FIRST_PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


class Viewers:
    """Open pages: plain sockets that a thread reads; `received` is in bytes."""

    def __init__(self, port: int, number: int) -> None:
        self.received = 0
        self._sockets = [_viewer(port) for _ in range(number)]
        self._threads = [threading.Thread(target=self._read, args=(one,)) for one in self._sockets]
        for thread in self._threads:
            thread.start()

    def __repr__(self) -> str:
        return f"<{len(self._sockets)} viewers>"

    def close(self) -> None:
        """Ends them all."""
        for one in self._sockets:
            one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()

    def _read(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                self.received += len(data)


def _viewer(port: int) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port))
    one.sendall(b"GET /live?group=default&rows=%b HTTP/1.1\r\nHost: control\r\n\r\n" % ROWS.encode())
    return one


@contextlib.contextmanager
def control() -> Iterator[tuple[int, int]]:
    """Control as a process: its pid and its port."""
    port = free_port()
    sizes = map(str, (port, STREAMS, MEMBERS, CHANGES_PER_S))
    process = subprocess.Popen([sys.executable, "-m", "bench.simulated_control", *sizes])
    try:
        _until_ready(f"http://127.0.0.1:{port}/streams?limit=1", process)
        yield process.pid, port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url).is_success:
                return
        time.sleep(0.1)  # polls; nothing is measured yet
    raise RuntimeError("control does not answer")


def load_of(pid: int) -> float:
    """Percent of a core that the process uses over MEASURED_S."""
    before_s, began_s = cpu_s(pid), time.monotonic()
    time.sleep(MEASURED_S)  # a measurement, not a synchronisation
    return (cpu_s(pid) - before_s) / (time.monotonic() - began_s) * 100


def answers_ms(get: Callable[[], httpx.Response]) -> list[float]:
    """How long each of ANSWERS answers takes, in ms, sorted."""
    taken = []
    for _ in range(ANSWERS):
        began_s = time.perf_counter()
        get().raise_for_status()
        taken.append((time.perf_counter() - began_s) * 1000)
    return sorted(taken)


def answer_rows(base: str) -> list[Row]:
    """The lists and the page of the map."""
    rows = []
    with httpx.Client(base_url=base, headers={"Accept-Encoding": "gzip"}) as http:
        for name, path, target in (
            ("GET /streams", "/streams?limit=1000", "< 50"),
            ("GET /streams, worst 50", "/streams?limit=50&sort=-lag", "< 50"),
            ("the page of the map", "/console/ownership", ""),
        ):
            taken = answers_ms(lambda path=path: http.get(path))  # type: ignore[misc]
            p99 = taken[len(taken) * 99 // 100 - 1]
            rows.append(_row(f"{name}: median", "ms", [statistics.median(taken)], target))
            rows.append(_row(f"{name}: p99", "ms", [p99], ""))
        page = http.get("/console/ownership").content
    rows.append(_row("the page of the map, packed", "kB", [len(gzip.compress(page, PACKED)) / 1000], "≈ 13"))
    return rows


def first_paints_ms(url: str) -> list[float]:
    """First contentful paint in a fresh Chromium each time, in ms; none without a browser."""
    programs = find_programs()
    if programs is None:
        return []
    options = webdriver.ChromeOptions()
    options.binary_location = programs.browser
    for option in OPTIONS:
        options.add_argument(option)
    found = []
    for _ in range(PAINTS):
        driver = webdriver.Chrome(options=options, service=Service(programs.driver))
        try:
            driver.get(url)
            deadline = time.monotonic() + 10
            while (paint := driver.execute_script(FIRST_PAINT)) is None and time.monotonic() < deadline:
                time.sleep(0.05)  # polls; the browser takes the time itself
            found += [] if paint is None else [float(paint)]
        finally:
            driver.quit()
    return found


def run() -> list[Row]:
    """All rows. Raises RuntimeError if control does not start."""
    with control() as (pid, port):
        base = f"http://127.0.0.1:{port}"
        time.sleep(SETTLE_S)  # a measurement, not a synchronisation
        alone = load_of(pid)
        viewers = Viewers(port, VIEWERS)
        try:
            before = viewers.received
            watched = load_of(pid)
            bytes_per_s = (viewers.received - before) / MEASURED_S / VIEWERS
            rows = answer_rows(base)
            paints = first_paints_ms(f"{base}/console/ownership")
        finally:
            viewers.close()
    return [
        _row("control without viewers", "% of a core", [alone], ""),
        _row(f"control with {VIEWERS} viewers", "% of a core", [watched], "< 15"),
        _row("what a viewer receives", "kB/s", [bytes_per_s / 1000], ""),
        *rows,
        _row("first contentful paint of the map", "ms", paints, "< 500"),
    ]


def _row(name: str, unit: str, values: list[float], target: str) -> Row:
    return Row(name=name, unit=unit, baton=values, baseline=[], target=target)


def main() -> int:
    """Prints the machine and the table."""
    shown = Console(width=min(160, shutil.get_terminal_size((160, 40)).columns))
    shown.print(machine())
    shown.print(table(run()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
