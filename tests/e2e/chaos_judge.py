"""The verdict on a chaos run: the clients' answers (200 or not) against the delivered sessions.

`readers.judge_log` compares the sessions with the log, and Spark's audit recomputes all of it.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Sequence

from shared.model.sessions import Session
from tests.e2e.chaos_load import Ledger


def number_of(value: bytes) -> int:
    """The number of a fragment of the load."""
    number: int = json.loads(value)["data"]["n"]
    return number


def judge_ledger(ledger: Ledger, delivered: Sequence[Session]) -> list[str]:
    """What contradicts the clients' ledger; empty when nothing does.

    Every acknowledged fragment is in exactly one session, any other in at most one, no session comes twice,
    and the acknowledged fragments of a key keep the order in which they were posted.
    """
    wrong = []
    twice = [one for one, count in Counter(session.id for session in delivered).items() if count > 1]
    if twice:
        wrong.append(f"{len(twice)} sessions twice, as {twice[:3]}")
    found = Counter(number_of(bytes(value)) for session in delivered for value in session.data)
    lost = [one.number for one in ledger.fragments if one.is_acknowledged and not found[one.number]]
    if lost:
        wrong.append(f"{len(lost)} acknowledged fragments lost, as {lost[:3]}")
    doubled = [number for number, count in found.items() if count > 1]
    if doubled:
        wrong.append(f"{len(doubled)} fragments doubled, as {doubled[:3]}")
    if invented := found.keys() - range(len(ledger.fragments)):
        wrong.append(f"{len(invented)} fragments never posted, as {sorted(invented)[:3]}")
    return wrong + _judge_order(ledger, delivered)


def _judge_order(ledger: Ledger, delivered: Sequence[Session]) -> list[str]:
    in_order: dict[str, list[Session]] = defaultdict(list)
    for session in sorted(delivered, key=lambda session: session.first_offset):
        in_order[session.key].append(session)
    wrong = []
    for key, sessions in in_order.items():
        if len({session.stream for session in sessions}) > 1:
            wrong.append(f"{key} is in several streams")
        overlaps = [a.id for a, b in itertools.pairwise(sessions) if a.last_offset >= b.first_offset]
        if overlaps:
            wrong.append(f"sessions of {key} overlap: {overlaps[:3]}")
        numbers = [number_of(bytes(value)) for session in sessions for value in session.data]
        known = [number for number in numbers if ledger.fragments[number].is_acknowledged]
        if known != sorted(known):
            wrong.append(f"{key} is out of order")
        if any(ledger.fragments[number].key != key for number in numbers):
            wrong.append(f"{key} has fragments of another key")
    return wrong
