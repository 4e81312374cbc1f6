"""Prints a demo's results: the owners of the streams, the reports, the audit, the counts of every stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from rich.filesize import decimal

from cli.commands.operations import cost_text
from cli.demo.stages import Stage
from cli.demo.truth import Findings
from cli.terminal.escaping import echo
from cli.terminal.output import counted, print_table
from shared.model.head import Counts

PERIOD_COLUMNS = (
    *("start", "sessions", "fragments", "seconds 50/99 %", "length 50/99 %"),
    *("end/gap/limit", "keys new/back"),
)
MOST_HOURS = 12
ITEM_TABLES = {"items": "Top items", "entries": "Top entry items", "exits": "Top exit items"}


def step(sentence: str) -> None:
    """Prints one step of the script."""
    click.secho("▸ ", fg="cyan", nl=False)
    echo(sentence)


def asked_text(stream: int, arrival: Mapping[str, Any] | None) -> str:
    """How the stream moved that the demo asked to move, from its last event: `handover`, or `claim`.

    >>> row = {"kind": "handover", "sessions": 12, "bytes": 3400, "pause_ms": 31, "warm": True}
    >>> asked_text(7, row)
    'stream 7 moved warm with 12 open sessions, 3.4 kB; the pause was 31 ms'
    >>> asked_text(7, {"kind": "claim", "warm": False}), asked_text(7, None)
    ('stream 7 had to replay', 'stream 7 has moved; no event says yet how')
    """
    if arrival is None or (arrival["kind"] == "claim" and arrival.get("warm")):
        return f"stream {stream} has moved; no event says yet how"
    if not arrival.get("warm"):
        return f"stream {stream} had to replay"
    sessions, size = arrival.get("sessions") or 0, decimal(arrival.get("bytes") or 0)
    return (
        f"stream {stream} moved warm with {counted(sessions, 'open session')}, {size};"
        f" the pause was {arrival['pause_ms']:g} ms"
    )


def moved_text(arrivals: Sequence[Mapping[str, Any]]) -> str:
    """What moved, and how long it stood still, from the last event of each stream: `handover`, or `claim`.

    >>> row = {"kind": "handover", "sessions": 12, "bytes": 3400, "pause_ms": 31, "warm": True}
    >>> moved_text([row, row | {"pause_ms": 40}])
    'handed over 2 streams, 24 open sessions, 6.8 kB, all warm; the longest pause was 40 ms'
    >>> moved_text([row, {"kind": "claim", "warm": False}])
    'handed over 1 stream, 12 open sessions, 3.4 kB; the pause was 31 ms; 1 stream had to replay'
    """
    handovers = [row for row in arrivals if row["kind"] == "handover"]
    replayed = sum(not row.get("warm") for row in arrivals)
    replays = f"{counted(replayed, 'stream')} had to replay"
    if not handovers:
        return replays if replayed else "nothing had to be handed over"
    pauses = [row["pause_ms"] for row in handovers]
    sessions = sum(row.get("sessions") or 0 for row in handovers)
    cost = cost_text(len(handovers), sessions, sum(row.get("bytes") or 0 for row in handovers))
    which = "the pause" if len(pauses) == 1 else "the longest pause"
    end = f"; {replays}" if replayed else ""
    return f"handed over {cost}{'' if replayed else ', all warm'}; {which} was {max(pauses):g} ms{end}"


def taken_over_text(sessions: int, claims: Sequence[Mapping[str, Any]], killed_at_ms: int) -> str:
    """How the streams of a killed consumer, with that many open sessions, were opened again.

    >>> taken_over_text(12, [{"at": 1_900, "warm": False}, {"at": 2_200, "warm": False}], 1_000)
    'replayed 2 streams with 12 open sessions; the last was open again after 1.2 s'
    """
    if not claims:
        return "none of its streams is open again yet"
    streams = counted(len(claims), "stream")
    waited_s = (max(row["at"] for row in claims) - killed_at_ms) / 1000
    held = counted(sessions, "open session")
    return f"replayed {streams} with {held}; the last was open again after {waited_s:.1f} s"


def where_to_look(console: str) -> str:
    """How to see what the demo has shown, once its stack is gone. `console`: its URL while a stack stays.

    >>> print(where_to_look("http://127.0.0.1:8000/"))
    To look around, run it again and keep the stack: `baton demo --stay` (`make demo ARGS=--stay`).
    The console is then at http://127.0.0.1:8000/, and `baton top` shows the same in the terminal.
    """
    return (
        "To look around, run it again and keep the stack: `baton demo --stay` (`make demo ARGS=--stay`).\n"
        f"The console is then at {console}, and `baton top` shows the same in the terminal."
    )


def print_ownership(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints who owns which streams, from the rows of `GET /streams`."""
    owners: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        owners.setdefault(row["owner"] or "nobody", []).append(row)
    table = []
    # by name, so that two runs are easy to compare
    for owner, owned in sorted(owners.items()):
        streams = ", ".join(str(row["stream"]) for row in owned)
        epoch = max(row["epoch"] for row in owned)
        sessions = sum(row["counts"]["sessions"] for row in owned)
        table.append([owner, len(owned), epoch, sessions, streams])
    columns = ("owner", "streams", "highest epoch", "sessions in them", "which")
    print_table(columns, table, title="Owners of the streams")


def print_reports(result: Mapping[str, Any]) -> None:
    """Prints the days, the newest hours and the top items."""
    for name, title in (("days", "Per day"), ("hours", f"Per hour, the newest {MOST_HOURS}")):
        # the newest: a log of weeks would fill the screen
        rows = result.get(name, [])[-MOST_HOURS:]
        print_table(PERIOD_COLUMNS, map(period_row, rows), title=title)
    for name, title in ITEM_TABLES.items():
        cells = ([row["item"], row["count"], row["sessions"]] for row in result.get(name, []))
        print_table(("item", "count", "sessions"), cells, title=title)


def print_audit(result: Mapping[str, Any]) -> None:
    """Prints the audit's numbers and its verdict on one line, and its examples if it has any."""
    echo(
        f"audit: missing {result['missing']}, overdue {result['overdue']}, extra {result['extra']}"
        f", different {result['different']}"
        f" ({result['judged']:,} sessions judged, recomputed in Spark from {result['fragments']:,} fragments)"
        f": {result['verdict']}"
    )
    in_table = ("missing", "extra", "different", "duplicated", "days")
    faults = ", ".join(f"{name} {result[f'lake_{name}']}" for name in in_table)
    echo(
        f"  routing: {result['misrouted']} fragments in a wrong stream; table: {faults}"
        f" ({result['lake_judged']:,} sessions judged)"
    )
    for one in result["left_out"]:
        echo(f"  not judged: {one['what']}, because {one['why']}")
    trusted = "; ".join(f"{one['what']} ({one['why']})" for one in result["trusted"])
    echo(f"  taken on trust: {trusted}")
    if result["examples"]:
        columns = ("kind", "stream", "key", "detail")
        print_table(columns, ([row[column] for column in columns] for row in result["examples"]))


def print_truth(findings: Findings) -> None:
    """Prints how the delivered sessions compare with those of the generated log."""
    echo(
        f"truth: missing {findings.missing}, extra {findings.extra}, different {findings.different}"
        " (every generated session, with its lines byte by byte)"
    )
    for sentence in findings.examples:
        echo(f"  {sentence}")


def print_stages(stages: Iterable[Stage], counts: Counts) -> None:
    """Prints the counts and bytes of every stage, then what is counted separately."""
    rows = [
        [
            stage.name if stage.text_bytes is None else f"{stage.name} (bytes of text)",
            stage.fragments,
            stage.bytes if stage.text_bytes is None else stage.text_bytes,
            stage.sessions,
        ]
        for stage in stages
    ]
    print_table(("stage", "fragments", "bytes", "sessions"), rows, title="Counts of every stage")
    # no faults: with these the offsets of the broker add up
    names = ("repeats", "markers", "ticks", "unreadable")
    echo("counted separately: " + ", ".join(f"{getattr(counts, name):,} {name}" for name in names))


def period_row(row: Mapping[str, Any]) -> list[Any]:
    """A row of the report `periods` for the table: related numbers share a cell, durations are in seconds."""
    seconds = "/".join(f"{row[f'duration_ms_p{p}'] / 1000:,.0f}" for p in (50, 99))
    length = "/".join(f"{row[f'length_p{p}']:,.0f}" for p in (50, 99))
    ends = "/".join(f"{row[f'ended_{reason}']:,}" for reason in ("end", "gap", "limit"))
    # hours are the finest period, so the seconds say nothing
    start = row["start"].replace("T", " ").removesuffix(":00Z")
    keys = f"{row['keys_new']:,}/{row['keys_returning']:,}"
    return [start, row["sessions"], row["fragments"], seconds, length, ends, keys]
