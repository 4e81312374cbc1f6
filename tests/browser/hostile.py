"""Two controls in memory: one whose texts and numbers are as bad as they may be, one without any data.

Nothing stands behind them, so they start at once. Clients post any text; the numbers are trillions.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import uvicorn
from fastapi import FastAPI

from bench.simulated_runs import report
from services.control.core.report.observed import Cluster, Offsets
from services.control.core.runs.run import RunError
from shared.model.routing import initial_table
from tests.tables import NOON, session, write_sessions
from tests.unit.control.http.console.runs_desk import DIFFERS, NOW_MS, Runs
from tests.unit.control.http.test_app import app_of
from tests.unit.control.looked_up import InMemoryOwners, InMemoryRecords, open_session
from tests.unit.control.sources import (
    LETTER,
    MAIL,
    InMemoryCluster,
    InMemoryOffsets,
    Sources,
    head,
    small_baton,
)

STREAMS: Final = 4
TRILLION: Final = 10**12
TURNED: Final = "\u202eevil\u202d \u05e9\u05dc\u05d5\u05dd 12 \u0627\u0644\u0633\u0644\u0627\u0645"
"""Turns what follows it, if nothing holds it; then Hebrew, digits, and Arabic."""
PILED: Final = "a" + "\u0301\u0323\u0489" * 20
"""A letter below and above which sixty marks are piled up."""


def _long(text: str) -> str:
    """The text, and as much behind it, without a place to break, as makes 250 bytes."""
    return text + "k" * (250 - len(text.encode()))


KEYS: Final = (_long("key-"), _long(TURNED), _long(PILED))
PATHS: Final = ("/" + "very-long-path/" * 130, "/" + "p" * 2_000, f"/{TURNED}", f"/{PILED}", "/")
STREAM: Final = initial_table(STREAMS).stream_for(KEYS[1].encode())
FINISHED: Final = f"{1:032x}"
HOSTILE_WISH: Final = {"kind": "rebalance", "reason": f"{TURNED} {PILED}"}


def _sources() -> Sources:
    sources = small_baton(STREAMS)
    members, numbers = sources.members.statuses, dict.fromkeys(range(STREAMS), TRILLION * 2)
    for name, status in members.items():
        rows = [
            msgspec.structs.replace(
                row, open_sessions=TRILLION, state_bytes=1000 * TRILLION, position=TRILLION + 5
            )
            for row in status.streams
        ]
        members[name] = msgspec.structs.replace(status, streams=rows)
    heads = {n: head(TRILLION, epoch=3, safe=TRILLION // 2, sessions=TRILLION) for n in range(STREAMS)}
    offsets = Offsets(first=dict.fromkeys(range(STREAMS), 7), end=numbers, heads={"default": heads})
    letter = msgspec.structs.replace(
        LETTER, headers={"why": PATHS[0] + TURNED, "attempts": str(TRILLION), "item": KEYS[1]}, text=PATHS[1]
    )
    mail = msgspec.structs.replace(
        MAIL, **dict.fromkeys(("ready", "leased", "waiting", "dead"), TRILLION), oldest_age_s=10.0**9
    )
    sources.offsets = InMemoryOffsets(offsets)
    sources.queues.rows["mail"], sources.queues.dead["mail"] = mail, [letter]
    return sources


def _runs() -> Runs:
    runs = Runs()
    examples = [
        {"kind": "missing", "id": FINISHED, "stream": STREAM, "key": key, "detail": f"recomputed: {TURNED}"}
        for key in KEYS
    ]
    runs.add("audit", "succeeded", DIFFERS | {"missing": TRILLION, "judged": TRILLION, "examples": examples})
    error = RunError(condition="SparkException", message=f"{PATHS[0]} {TURNED} {PILED}")
    runs.add("lake", "failed", error=error)
    made = report(NOW_MS)
    items = [{"item": path, "count": TRILLION - n} for n, path in enumerate(PATHS)]
    hours = [
        hour | {"sessions": TRILLION, "fragments": TRILLION, "duration_ms_p50": 0} for hour in made["hours"]
    ]
    runs.add("reports", "succeeded", made | {"items": items, "hours": hours})
    return runs


def _write_lake(folder: Path) -> None:
    data = [
        msgspec.json.encode({"key": key, "data": {"path": path}}).decode() for key in KEYS for path in PATHS
    ]
    big = dict.fromkeys(("fragments", "bytes", "first_offset", "last_offset", "epoch"), TRILLION)
    rows = [session(n, KEYS[1], stream=STREAM, data=data, **big) for n in range(3)]
    write_sessions(folder, rows)


async def _hostile(folder: Path) -> FastAPI:
    _write_lake(folder)
    held = {key: open_session(key, TRILLION, fragments=TRILLION, bytes=TRILLION) for key in KEYS}
    value = msgspec.json.encode({"key": KEYS[1], "time": NOON, "data": {"path": PATHS[0]}})
    odd = f"{TURNED} {PATHS[1]}".encode()
    log: list[tuple[bytes | None, bytes]] = [(KEYS[1].encode(), value), (KEYS[2].encode(), odd), (None, odd)]
    return await app_of(
        _sources(),
        _runs(),
        lake=str(folder),
        owners=InMemoryOwners({"m1": held, "m2": held}),
        records=InMemoryRecords(dict.fromkeys(range(STREAMS), log)),
    )


async def _empty(folder: Path) -> FastAPI:
    nothing = Sources(cluster=InMemoryCluster(Cluster()))
    return await app_of(nothing, Runs(), lake=str(folder))


@contextlib.contextmanager
def _served(make: Callable[[Path], Coroutine[Any, Any, FastAPI]], folder: Path) -> Iterator[str]:
    """The URL of the app, which is served in a thread during the block."""
    config = uvicorn.Config(
        asyncio.run(make(folder)), lifespan="off", log_config=None, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def hostile_control(folder: Path) -> contextlib.AbstractContextManager[str]:
    """The URL of a control with the worst texts and numbers."""
    return _served(_hostile, folder)


def empty_control(folder: Path) -> contextlib.AbstractContextManager[str]:
    """The URL of a control that has read a cluster without anything in it."""
    return _served(_empty, folder)
