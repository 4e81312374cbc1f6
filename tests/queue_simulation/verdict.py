"""What must be so after a simulated run of queue workers: nothing is lost, and all know the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from services.queue.core.commands import decode_record
from services.queue.core.items import ItemRecord, life_of
from services.queue.core.queue_state import QueueState
from services.queue.core.snapshot import encode_state
from tests.queue_simulation.ledger import Ledger
from tests.queue_simulation.reference import Reference
from tests.queue_simulation.wire import UnreliableStore
from tests.queue_simulation.world import real_state, reference_state


def judge(
    store: UnreliableStore,
    ledger: Ledger,
    states: Sequence[QueueState],
    put: range,
    most_attempts: int | None,
) -> list[str]:
    """What is wrong, in words, when the workers have these `states` at the end of the log.

    `put`: clients have put these numbers since the queue was created. `most_attempts`: None if there was no
    limit at times.
    """
    wrong = []
    if most_attempts is not None:
        often = [one for one in ledger.seen if one[1] > most_attempts]
        wrong += [f"{place} has had attempt {attempt}" for place, attempt in often]
    if len(set(map(encode_state, states))) > 1:
        wrong.append("workers at the end of the log have different states")
    reference = folded(store, "q")
    if real_state(states[0]) != reference_state(reference):
        wrong.append("the workers' state or counts are not those of the reference")
    return [*wrong, *_judge_items(store, ledger, reference, put), *_judge_letters(store, reference)]


def folded(store: UnreliableStore, queue: str) -> Reference:
    """The reference's state at the end of a queue's log, also of what was trimmed."""
    reference = Reference()
    for record in store.logs[queue].records:
        reference.apply(record.offset, record.append_ms, decode_record(record.value))
    return reference


def _judge_items(store: UnreliableStore, ledger: Ledger, reference: Reference, put: range) -> list[str]:
    """Each is done by a client, dead, skipped by an operator, or a repeat of one that is."""
    wrong = []
    why: defaultdict[int, set[str]] = defaultdict(set, {n: set() for n in put})
    for number, items in enumerate(store.topics["q"].partitions):
        for offset, item in enumerate(items):
            if item is not None:
                why[int(item.value)].add(reference.why.get((number, offset), "not done"))
    for n, found in why.items():
        is_done = {"dead", "skipped"} & found or n in ledger.asked
        if "not done" in found or not is_done:
            wrong.append(f"{n} is lost: {', '.join(sorted(found))}")
    return wrong


def _judge_letters(store: UnreliableStore, reference: Reference) -> list[str]:
    """Each death has a letter of its own; a letter is done only once its item is in the queue again."""
    wrong = []
    letters = folded(store, "q.dead")
    known: dict[str, set[str]] = {}
    for number, stored in enumerate(store.topics["q.dead"].partitions):
        for offset, letter in enumerate(stored):
            assert letter is not None
            why = letters.why.get((number, offset), "open")
            known.setdefault(letter.id, set()).add(why)
            if why == "acked" and not _is_back(store, letter):
                wrong.append(f"the letter {letter.id} is done, and its item is lost")
    items = store.topics["q"].partitions
    assert reference.settings is not None
    for (number, offset), first in reference.deaths:
        if items[number][offset] is None:
            continue  # an offset without an item: nothing dies with it
        life = life_of(first, reference.settings.incarnation)
        if known.get(f"q/{number}/{offset}/{life}", set()) <= {"repeat"}:
            wrong.append(f"{(number, offset)}, leased first at {first}, is dead without a letter")
    store.happened["deaths"] += len(reference.deaths)
    return wrong


def _is_back(store: UnreliableStore, letter: ItemRecord) -> bool:
    """Whether the letter's item was put again after it was buried."""
    stored = store.topics["q"].partitions
    return any(
        item is not None and item.value == letter.value and item.append_ms >= letter.append_ms
        for one in stored
        for item in one
    )
