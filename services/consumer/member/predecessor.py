"""Waits, before a process joins, while an earlier process of its id still answers.

An earlier process that was killed leaves its node and its claims until its ZooKeeper session times out. Its
address refuses connections then, so its successor ends what it left: it replaces the node, and the claims
that no other member has replaced, and has its streams back at once. An address that answers may be that of a
second process with the same id, started by mistake: then both would end each other again and again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from services.consumer.ports import Listeners
from shared.errors import Unavailable
from shared.model.cluster import MemberNode

logger = logging.getLogger(__name__)

AGAIN_S = 0.5


class Registry(Protocol):
    """Where processes are registered under the id of this member."""

    async def predecessor(self) -> MemberNode | None:
        """What an earlier ZooKeeper session has left under this id, if anything."""


async def await_predecessor(
    registry: Registry,
    listeners: Listeners,
    address: str,
    *,
    was_open: bool | None,
    complain: Callable[[str], None],
) -> None:
    """Returns once no process answers at the address that is registered under this id.

    `was_open`: whether one answered at our own `address` before we listened there. Without an answer of any
    kind it returns as well: the host is gone.
    """
    is_logged = False
    while True:
        try:
            found = await registry.predecessor()
        except Unavailable as error:
            complain(error.reason)
        else:
            if found is None:
                return
            is_open = was_open if found.address == address else await listeners.is_open(found.address)
            if not is_open:
                logger.info("predecessor has ended", extra={"address": found.address, "pid": found.pid})
                return
            complain(f"another process answers as this member at {found.address}")
            if not is_logged:
                logger.warning("predecessor answers, waiting", extra={"address": found.address})
                is_logged = True
        await asyncio.sleep(AGAIN_S)
