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


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: the number of its item, how many attempts that had, and why it died."""

    number: int
    attempts: int
    why: str


def judge(lines: Collection[Line], count: int, letters: Collection[Letter], max_attempts: int) -> Verdict:
    """Whether the items 0 … count - 1 were each done, and none was handed out after its ack.

    Done: an ack was confirmed, or there is a letter, or an ack was asked for and had no answer at all. An ack
    that was refused did nothing.
    """
    verdict = Verdict()
    acked_s: dict[int, float] = {}
    unanswered: Counter[tuple[int, int]] = Counter()
    for line in lines:
        verdict.counts[f"{line.what} {line.how}"] += len(line.items)
        verdict.counts["elsewhere"] += len(line.items) * line.elsewhere
        if line.how != "ack":
            continue
        for n, attempt in line.items:
            unanswered[n, attempt] += 1 if line.what == "asked" else -1
            if line.what == "done":
                acked_s[n] = min(line.at_s, acked_s.get(n, line.at_s))
    had = _had(lines)
    for line in lines:
        if line.what == "got":
            late = [n for n, _ in line.items if n in acked_s and acked_s[n] < line.at_s]
            verdict.wrong += [f"{n} was handed out after its ack" for n in late]
    verdict.wrong += [
        f"{n} was handed out twice as attempt {a}" for (n, a), times in had.items() if times > 1
    ]
    verdict.wrong += [f"{n} has had attempt {a}" for n, a in had if not 1 <= a <= max_attempts]
    verdict.wrong += _wrong_letters(letters, had, max_attempts)
    silent = {n for (n, _), times in unanswered.items() if times > 0}
    lost = sorted(set(range(count)) - acked_s.keys() - silent - {letter.number for letter in letters})
    verdict.wrong += [f"{n} is lost" for n in lost]
    verdict.counts["letters"] = len({letter.number for letter in letters})
    verdict.counts["without an answer"] = len(silent - acked_s.keys())
    return verdict


def first_handed_out(lines: Iterable[Line]) -> list[int]:
    """The numbers of the items in the order in which they were first leased, by when that was asked for."""
    first: dict[int, float] = {}
    for line in lines:
        if line.what == "got":
            for n, _ in line.items:
                first[n] = min(line.at_s, first.get(n, line.at_s))
    return sorted(first, key=lambda n: (first[n], n))


def _had(lines: Iterable[Line]) -> Counter[tuple[int, int]]:
    """How often each item was had as each attempt."""
    return Counter((n, attempt) for line in lines if line.what == "got" for n, attempt in line.items)


def _wrong_letters(
    letters: Iterable[Letter], had: Collection[tuple[int, int]], max_attempts: int
) -> Iterator[str]:
    """A letter counts all attempts that clients have seen; one that is exhausted has had all of them."""
    seen: dict[int, int] = {}
    for n, attempt in had:
        seen[n] = max(attempt, seen.get(n, 0))
    for letter in letters:
        n, attempts = letter.number, letter.attempts
        if letter.why == "max_attempts" and attempts != max_attempts:
            yield f"{n} is exhausted after {attempts} attempts"
        if not max(1, seen.get(n, 0)) <= attempts <= max_attempts:
            yield f"the letter of {n} has {attempts} attempts, and attempt {seen.get(n, 0)} was had"
