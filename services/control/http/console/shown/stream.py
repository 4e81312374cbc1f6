"""The page of one stream: its facts and the sentence that says how it is. Pure."""

from __future__ import annotations

from typing import Any

from services.control.core.report.rows import StreamDetail
from services.control.http.console.drawing.log import LogDrawing, log_drawing
from services.control.http.console.shown.scene import STREAM_CELLS, behind_of, replay_of, stream_cells
from services.control.http.console.words import clock, count, per_second, size, span

SENTENCES = {
    "OK": "",
    "WARN": "It moves, but falls behind: the lag grew at each of the last three commits.",
    "STOP": "It has not committed for a while, and records wait.",
    "STALL": "It commits, but does not advance.",
    "REWIND": "Its position went back, or the log ends below it. It waits for an operator.",
}

DRAWN = [STREAM_CELLS.index(name) for name in ("owner", "status", "state", "epoch")]
"""The cells of the live row whose change makes the page read itself again at once."""


def stream_page(row: StreamDetail, now_ms: int) -> dict[str, Any]:
    """What the template needs of the stream."""
    cells = stream_cells(row)
    since = row.owners[0].since if row.owners and row.owners[0].owner == row.owner else None
    return {
        "row": row,
        "drawn_cells": " ".join(map(str, DRAWN)),
        "drawn": "|".join(cells[cell] for cell in DRAWN),
        "sentence": sentence_of(row),
        "replay": replay_of(row),
        "log": _log_of(row),
        # label, cell of the live row that keeps it current, value, unit
        "values": [
            ("Owner", 0, row.owner or "nobody", ""),
            ("Since", None, clock(since, now_ms), span(now_ms - since) if since else ""),
            ("Epoch", 8, str(row.epoch), ""),
            ("Lag", 3, count(row.lag), "records"),
            ("Behind", 12, behind_of(row), ""),
            ("Fragments in", 4, per_second(row.rate), "per second"),
            ("Read", 11, per_second(row.read_rate), "per second"),
            ("Open sessions", 5, count(row.open_sessions), ""),
            ("State", 6, size(row.state_bytes), ""),
            ("Covered keys", None, count(row.covered), ""),
            ("Pinned to", None, row.pinned_to or "nobody", ""),
        ],
    }


def _log_of(row: StreamDetail) -> LogDrawing | None:
    if row.first is None or row.end is None or row.safe_offset is None or row.position is None:
        return None
    return log_drawing(row.first, row.safe_offset, row.position, row.end)


def sentence_of(row: StreamDetail) -> str:
    """How the stream is, in a sentence; "" if it runs and keeps up."""
    if row.owner is None:
        return "Nobody owns it. Its fragments are kept and wait."
    if row.state == "retrying":
        return f"{row.owner} fails on it and tries again."
    if row.state in ("opening", "replaying"):
        return f"{row.owner} is {row.state} it."
    if row.status is None:
        return "No leader of its log answers, so how far it is behind is not known."
    return SENTENCES[row.status]
