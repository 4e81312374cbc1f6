"""Where a stream begins that has no head: in a group with a start, there, with what others' sessions cover.

Used by `opening.py`. The first commit stores what is covered, so this is done once in a stream's life, and
again if the first owner dies before its first commit.
"""

from __future__ import annotations

from collections.abc import Callable

from services.consumer.core.commits.checkpoint import Checkpoint, start_following
from services.consumer.core.sessions.seam import Seam
from services.consumer.stream.context import GroupContext
from services.consumer.stream.slices import in_slices
from shared.model.head import NOTHING, Head
from shared.model.start import reaching_cuts


async def start_of_group(
    stream: int, head: Head, context: GroupContext, note_progress: Callable[[], None]
) -> Checkpoint | None:
    """The checkpoint to begin with, None for the beginning of the log.

    `head`: as it was read, without a commit. Raises Unavailable; InvalidInput if the group's start does not
    name the stream.
    """
    # of a stream that was started over, an operator has decided to read the log that is there
    if context.start is None or head.log:
        return None
    start = context.start.offset(stream)
    if start is None:
        return None
    seam = Seam(stream, start)
    for cut in reaching_cuts(context.chain, stream):
        async for raw in context.log.delivered(cut, stream, start):
            seam.add(cut, (raw,))
            note_progress()
    covered = await in_slices(seam.covering())
    return start_following(start, head.log, covered, context.start.appended.get(stream, NOTHING))
