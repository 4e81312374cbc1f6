"""A member that also writes a trace: `python -m bench.observed_member FOLDER`.

It is the real consumer, which writes a line to a file of the folder (`trace.py` reads it) for every fold and
every stop of a stream, so that pauses are measured from outside. While the folder has a file `plain`, it
moves streams as one would without Baton's handover: stop, commit, release to the target, which claims and
replays from the checkpoint. That is the baseline of the bench.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from services.consumer.__main__ import serve
from services.consumer.adapters.http_peers import HttpPeers
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import Turn
from services.consumer.core.handover.rules import BundleRequest
from services.consumer.core.ownership.decide import HandOver, Release
from services.consumer.core.sessions.record import Record
from services.consumer.core.slices import Steps
from services.consumer.member.effects import EffectRunner
from services.consumer.settings import ConsumerSettings
from services.consumer.stream.worker import StreamWorker
from shared.errors import PeerUnavailable
from shared.model.cluster import View
from shared.service.runtime import main


def observe(folder: Path, member: str) -> None:
    """Writes a line for every folded batch and for every stop."""
    lines = (folder / f"{member}.trace").open("a", buffering=1)
    turning, stop, freeze = Stream.turning, StreamWorker.stop, StreamWorker.freeze

    def observed_turning(self: Stream, records: Sequence[Record], **now: Any) -> Steps[Turn]:
        found = yield from turning(self, records, **now)
        if records:
            lines.write(f"{time.time_ns() / 1e6:.1f} {member} {self.stream} fold {records[-1].offset}\n")
        return found

    def note_stop(self: StreamWorker) -> None:
        if not self._still.is_set():  # the first time only
            lines.write(f"{time.time_ns() / 1e6:.1f} {member} {self.stream} stop 0\n")

    def observed_stop(self: StreamWorker) -> None:
        note_stop(self)
        stop(self)

    def observed_freeze(self: StreamWorker) -> None:
        note_stop(self)
        freeze(self)

    Stream.turning = observed_turning  # type: ignore[method-assign]  # only here, to observe from outside
    StreamWorker.stop = observed_stop  # type: ignore[method-assign]
    StreamWorker.freeze = observed_freeze  # type: ignore[method-assign]


def allow_plain_moves(folder: Path) -> None:
    """While there is a file `plain`, a move is a release, and no member fetches its predecessor's memory."""
    plain, hand_over, fetch = folder / "plain", EffectRunner._hand_over, HttpPeers.fetch

    async def maybe_hand_over(self: EffectRunner, effect: HandOver, view: View) -> None:
        if not plain.exists():
            await hand_over(self, effect, view)
            return
        await self._release(
            Release(stream=effect.stream, epoch=effect.epoch, target=effect.target, why=effect.why)
        )

    async def maybe_fetch(self: HttpPeers, address: str, request: BundleRequest) -> bytes:
        if plain.exists():
            raise PeerUnavailable("the baseline has no memory")
        return await fetch(self, address, request)

    EffectRunner._hand_over = maybe_hand_over  # type: ignore[method-assign]
    HttpPeers.fetch = maybe_fetch  # type: ignore[method-assign]


if __name__ == "__main__":
    folder = Path(sys.argv.pop(1))  # the consumer knows no such argument
    observe(folder, os.environ["BATON_MEMBER"])
    allow_plain_moves(folder)
    sys.exit(main("consumer", ConsumerSettings, serve))
