"""Makes items dead letters: copies of them are in the queue of dead letters before they are done here.

Made twice, a copy shows by its id that it is a repeat. Used by leasing.py.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence

from services.queue.core.commands import Dead, Receipt
from services.queue.core.fold import Leased, ReceiptsAnswer
from services.queue.core.items import Death, dead_letter, life_of
from services.queue.ports import ItemLog
from services.queue.worker.engine import Engine
from services.queue.worker.handing_out import READ_AT_ONCE, place_of
from shared.errors import KafkaUnavailable

WHY_EXHAUSTED = "max_attempts"
logger = logging.getLogger(__name__)


async def bury_exhausted(engine: Engine, items: ItemLog, letters: ItemLog, gone: Sequence[Leased]) -> None:
    """Buries items that have had all their attempts; if it fails, the next lease hands them to a worker."""
    deaths = {one.receipt: Death(one.attempt, life_of(one.first_lease, engine.incarnation)) for one in gone}
    try:
        await copy_to(letters, engine.name, items, deaths, WHY_EXHAUSTED)
        await engine.submit(Dead(tuple(one.receipt for one in gone)), ReceiptsAnswer)
    except KafkaUnavailable as error:
        logger.warning("dead letters wait", extra={"queue": engine.name, "why": error.detail})


async def copy_to(
    letters: ItemLog, queue: str, items: ItemLog, deaths: Mapping[Receipt, Death], why: str
) -> None:
    """Stores a letter of each of these items. Raises KafkaUnavailable."""
    left = iter(deaths)
    # some at a time: each may have a megabyte
    while some := list(itertools.islice(left, READ_AT_ONCE)):
        records = await items.get([place_of(receipt) for receipt in some])
        made = [
            dead_letter(queue, receipt, records[place_of(receipt)], deaths[receipt], why)
            for receipt in some
            if place_of(receipt) in records
        ]
        if made and await letters.append(made):
            raise KafkaUnavailable("the dead letters are not stored")
