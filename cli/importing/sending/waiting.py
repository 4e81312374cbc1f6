"""Waits until an import is delivered, which means that every stream is committed past its closing marker.

Reads control's `GET /streams`. Those positions come from the committed heads, so once they pass the markers,
the sessions are in the topic `sessions`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from cli.http.receipts import MarkerPosition
from shared.errors import Unavailable

POLL_S = 0.25


def left_to_read(markers: Iterable[MarkerPosition], rows: Iterable[Mapping[str, Any]]) -> int:
    """How many offsets, markers included, are not committed yet; 0 when everything is delivered.

    A stream without a row was never owned, so nothing of it is committed.

    >>> left_to_read([MarkerPosition(0, 9), MarkerPosition(1, 4)], [{"stream": 0, "position": 7}])
    8
    """
    # the committed position is the next offset to read, hence the 1 below
    position = {row["stream"]: row.get("position") or 0 for row in rows}
    return sum(max(0, marker.offset + 1 - position.get(marker.stream, 0)) for marker in markers)


async def await_delivery(
    read_streams: Callable[[], Awaitable[Mapping[str, Any]]],
    markers: Sequence[MarkerPosition],
    group: str,
    *,
    stall_s: float,
    on_progress: Callable[[int], None] = lambda _: None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Returns when every marker is below its stream's committed position in `group`.

    `read_streams` answers like control's `GET /streams`. Raises Unavailable when nothing was committed for
    `stall_s` seconds, or control stays unavailable.
    """
    least: int | None = None
    progressed_s = clock()
    while True:
        left = left_to_read(markers, (await read_streams())["streams"])
        on_progress(left)
        if left == 0:
            return
        # progress of any stream counts: one with a large backlog may take long
        if least is None or left < least:
            least, progressed_s = left, clock()
        elif clock() - progressed_s > stall_s:
            raise Unavailable(
                f"group {group!r} has committed nothing for {stall_s:g} s, {left} records are not delivered"
                " yet: look at `baton streams` and `baton members`"
            )
        await sleep(POLL_S)
