"""Judges what clients of a queue have written into their journals, and what is left in the queue.

An ack that was confirmed before a lease was asked for stands before that lease in the queue's log. So an item
that such a lease hands out was handed out after it was done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tests.e2e.queue_clients import Line

_decode = msgspec.json.Decoder(Line).decode


@dataclass(slots=True)
class Verdict:
    """What was wrong, in words; and how much of what has happened."""

    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def read_journals(files: Iterable[Path]) -> Iterator[Line]:
    """The lines of all journals; the last one of a killed client may be cut."""
    for file in files:
        for line in file.read_bytes().split(b"\n")[:-1]:
            yield _decode(line)


def judge(lines: Collection[Line], count: int, letters: Collection[int], max_attempts: int) -> Verdict:
    """Whether the items 0 … count - 1 were each acked or are dead letters, and none was had after its ack."""
    verdict = Verdict()
    acked_s: dict[int, float] = {}
    asked: set[int] = set()
    for line in lines:
        verdict.counts[f"{line.what} {line.how}"] += len(line.items)
        verdict.counts["elsewhere"] += len(line.items) * line.elsewhere
        if line.how != "ack":
            continue
        for n, _ in line.items:
            asked.add(n)
            if line.what == "done":
                acked_s[n] = min(line.at_s, acked_s.get(n, line.at_s))
    had: Counter[tuple[int, int]] = Counter()
    for line in lines:
        if line.what == "got":
            had.update((n, attempt) for n, attempt in line.items)
            late = [n for n, _ in line.items if n in acked_s and acked_s[n] < line.at_s]
            verdict.wrong += [f"{n} was handed out after its ack" for n in late]
    verdict.wrong += [
        f"{n} was handed out twice as attempt {a}" for (n, a), times in had.items() if times > 1
    ]
    verdict.wrong += [f"{n} has had attempt {a}" for n, a in had if not 1 <= a <= max_attempts]
    lost = sorted(set(range(count)) - asked - set(letters))
    verdict.wrong += [f"{n} is lost" for n in lost]
    verdict.counts["letters"] = len(set(letters))
    return verdict
