"""What the pages of queues show: texts, sparks, tiles, and the sentences before an act. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from urllib.parse import quote

from services.control.core.history.hour import STEP_MS, Number
from services.control.core.history.queue_history import QueueHistory
from services.control.core.queues import Act, DeadLetter, QueueChange, QueueRow
from services.control.http.console.words import clock, count, digest_of, listed, plural, size, span

SPARK_WIDTH: Final = 120
SPARK_HEIGHT: Final = 24
ACTS: Final[dict[Act, str]] = {"redrive": "Redrive", "purge": "Purge"}
DID: Final[dict[Act, str]] = {
    "redrive": "The dead letters have been put back.",
    "purge": "The items have been dropped.",
}
QUEUE_CELLS = ("ready", "leased", "waiting", "dead", "age")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """An hour as a small line, in pieces where it has gaps, with what it says in words."""

    lines: Sequence[str]
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterLine:
    """A dead letter as a row of a table."""

    buried: str
    id: str
    item: str
    attempts: str
    why: str
    size: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDryRun:
    """What an act would do. `parts` pairs each piece of the sentence with whether it is stressed."""

    title: str
    parts: Sequence[tuple[str, bool]]
    warning: str
    facts: Sequence[tuple[str, str]]


def queue_cells(row: QueueRow) -> tuple[str, ...]:
    """The texts of a queue, as QUEUE_CELLS names them."""
    return (count(row.ready), count(row.leased), count(row.waiting), count(row.dead), age_text(row))


def age_text(row: QueueRow) -> str:
    """How long the oldest item has been there; "" also without any."""
    if row.oldest_age_s is None:
        return ""
    return f"{row.oldest_age_s:.0f} s" if row.oldest_age_s < 99.5 else span(row.oldest_age_s * 1000)


def queues_drawn(rows: Sequence[QueueRow], now_ms: int) -> str:
    """Changes when pages with queues must be drawn again: other queues, or a new sample of the hour."""
    return digest_of(str(now_ms // STEP_MS), *(row.queue for row in rows)) if rows else ""


def queues_sentence(rows: Sequence[QueueRow]) -> str:
    """All queues in a sentence or two."""
    if not rows:
        return "There are no queues yet."
    depths = [row.depth for row in rows if row.depth is not None]
    parts = [f"{plural(len(rows), 'queue')}."]
    if depths:
        parts = [f"{plural(len(rows), 'queue')} with {plural(sum(depths), 'item')} to be done."]
    if dead := sum(row.dead or 0 for row in rows):
        having = listed([row.queue for row in rows if row.dead][:3])
        parts.append(f"{plural(dead, 'dead letter waits', 'dead letters wait')} for a look, in {having}.")
    return " ".join(parts)


def queue_sentence(row: QueueRow) -> str:
    """What must be known of the queue, in a sentence; "" if it is an ordinary one."""
    if row.depth is None:
        return "No queue worker answers, so nobody can put or lease items now."
    over = row.settings.over
    return f"Its items are the records of {over}." if over else ""


def spark(history: QueueHistory) -> Spark:
    """The items to be done over the last hour, from 0 to the most."""
    column = history.depth
    known = [number for number in column if number is not None]
    if not known:
        return Spark(lines=[], words="nothing is known of the last hour")
    most = max(known)
    points = [(n, _point(n, len(column), number, most)) for n, number in enumerate(column)]
    pieces = [
        " ".join(text for _, text in piece if text)
        for has_value, piece in groupby(points, key=lambda point: bool(point[1]))
        if has_value
    ]
    return Spark(lines=pieces, words=f"items to be done in the last hour: at most {count(most)}")


def _point(n: int, slots: int, number: Number, most: float) -> str:
    if number is None:
        return ""
    x = SPARK_WIDTH * n / max(1, slots - 1)
    y = SPARK_HEIGHT - 2 - (SPARK_HEIGHT - 4) * (number / most if most else 0)
    return f"{x:.1f},{y:.1f}"


def settings_facts(row: QueueRow) -> list[tuple[str, str]]:
    """The settings of a queue as texts by name."""
    settings = row.settings
    return [
        ("Items", f"the records of {settings.over}" if settings.over else "its own"),
        ("Partitions", count(settings.partitions)),
        ("A lease", span(settings.lease_s * 1000)),
        ("Attempts", count(settings.max_attempts) if settings.max_attempts else "without limit"),
        ("Ids are known for", span(settings.repeat_ms) if settings.repeat_ms else "no time"),
        ("Done items are kept for", span(settings.keep_s * 1000) if settings.keep_s else "no time"),
    ]


def letter_line(letter: DeadLetter, now_ms: int) -> LetterLine:
    """The row of a dead letter."""
    headers = letter.headers
    return LetterLine(
        buried=clock(letter.enqueued_at, now_ms),
        id=letter.id or "",
        item=headers.get("item", ""),
        attempts=headers.get("attempts", ""),
        why=headers.get("why", ""),
        size=size(letter.size),
        text=letter.text,
    )


def title_of(act: Act, queue: str) -> str:
    """The act in words, as its button names it."""
    return f"{ACTS[act]} {queue}"


def path_of(queue: str, act: str = "") -> str:
    """The page of a queue, or of the dry run of an act."""
    return f"/console/queues/{quote(queue, safe='')}" + (f"/{act}" if act else "")


def queue_dry_run(change: QueueChange, row: QueueRow) -> QueueDryRun:
    """The page before the act. `row`: the queue as it was at the last reading."""
    title, number = title_of(change.act, change.queue), change.items
    if change.act == "redrive":
        after = f" would be put back into the queue, and {plural(change.ready, 'item')} would be ready then."
        rest = "Their attempts begin anew. What failed for a reason that still holds fails again."
        parts = [(plural(number, "dead letter"), True), (f"{after} {rest}", False)]
        if not number:
            parts = [("There is no dead letter to put back.", False)]
        return QueueDryRun(title=title, parts=parts, warning="", facts=[("Dead letters", count(number))])
    kept = f" The topic {row.settings.over} keeps its records." if row.settings.over else ""
    rest = f" would be dropped, and nobody would get them. Dead letters stay.{kept}"
    return QueueDryRun(
        title=title,
        parts=[(plural(number, "item"), True), (rest, False)]
        if number
        else [("There is nothing to drop.", False)],
        warning=_lost(row) if number else "",
        facts=[
            ("Ready", count(row.ready)),
            ("Leased", count(row.leased)),
            ("Waiting", count(row.waiting)),
        ],
    )


def _lost(row: QueueRow) -> str:
    """What you must know before you confirm a purge."""
    end = "This cannot be undone, and what is put before you confirm is dropped, too."
    if not row.leased:
        return end
    return f"{plural(row.leased, 'item is', 'items are')} being worked on; the receipts become stale. {end}"
