"""Makes items dead letters: copies of them are in the queue of dead letters before they are done here.

Made twice, a copy shows by its id that it is a repeat. Used by leasing.py.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence

from services.queue.core.commands import Dead, Receipt
from services.queue.core.fold import Leased
from services.queue.core.items import Death, ItemRecord, dead_letter, life_of, without_value
from services.queue.ports import ItemLog
from services.queue.worker.engine import Engine
from services.queue.worker.handing_out import READ_AT_ONCE, place_of
from shared.errors import KafkaUnavailable

WHY_EXHAUSTED = "max_attempts"
logger = logging.getLogger(__name__)


async def bury_exhausted(engine: Engine, items: ItemLog, letters: ItemLog, gone: Sequence[Leased]) -> None:
    """Buries items that have had all their attempts; what is left, the next lease hands to a worker."""
    deaths = {one.receipt: Death(one.attempt, life_of(one.first_lease, engine.incarnation)) for one in gone}
    try:
        left = await bury(engine, items, letters, deaths, WHY_EXHAUSTED)
        why = f"{left} are not stored" if left else ""
    except KafkaUnavailable as error:
        why = error.detail
    if why:
        logger.warning("dead letters wait", extra={"queue": engine.name, "why": why})


async def bury(
    engine: Engine, items: ItemLog, letters: ItemLog, deaths: Mapping[Receipt, Death], why: str
) -> int:
    """Stores a letter of each of these items, which is done then; how many are left. Raises KafkaUnavailable.

    Each by itself, so that one without a letter is no reason to copy the others again. If Kafka refuses a
    letter for good, the item would be leased and buried for ever: then the letter goes without the value.
    """
    waiting, left = iter(deaths), 0
    # some at a time: each may have a megabyte
    while some := list(itertools.islice(waiting, READ_AT_ONCE)):
        records = await items.get([place_of(receipt) for receipt in some])
        made = {
            receipt: dead_letter(engine.name, receipt, records[place_of(receipt)], deaths[receipt], why)
            for receipt in some
            if place_of(receipt) in records
        }
        unsure, refused = await _store(letters, made)
        bare = {receipt: without_value(made[receipt], _shown_place(engine, receipt)) for receipt in refused}
        for still in await _store(letters, bare):
            unsure += still
        buried = [receipt for receipt in some if receipt not in unsure]
        done = (
            Dead(tuple(receipt for receipt in buried if receipt not in bare)),
            Dead(tuple(receipt for receipt in buried if receipt in bare), is_bare=True),
        )
        await engine.submissions.submit([command for command in done if command.receipts])
        left += len(unsure)
    return left


async def _store(letters: ItemLog, made: Mapping[Receipt, ItemRecord]) -> tuple[list[Receipt], list[Receipt]]:
    """The items whose letters may not be stored, and those whose letters Kafka refuses."""
    if not made:
        return [], []
    receipts, unstored = list(made), await letters.append(list(made.values()))
    return [receipts[index] for index in unstored.unsure], [receipts[index] for index in unstored.refused]


def _shown_place(engine: Engine, receipt: Receipt) -> str:
    settings = engine.state.settings
    topic = settings.over if settings is not None and settings.over else engine.name
    logger.warning("letter without its value", extra={"queue": engine.name, "offset": receipt.offset})
    return f"{topic}/{receipt.partition}/{receipt.offset}"
