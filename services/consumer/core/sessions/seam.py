"""Where a group that follows another one begins: which records stand in sessions of others.

The group starts at an offset of the stream. Sessions of the followed groups that began below it and reach
it are current in this group too. So their keys are *covered* through their last offsets: the fold skips these
records, as a replay does. Everything that began below the start was delivered before the start was chosen
(`shared/model/start.py`), so what is covered never changes. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from services.consumer.core.large_dict import LargeDict
from services.consumer.core.sessions.state import Covered
from services.consumer.core.slices import Steps, sliced, sorting
from shared.model.start import Cut


class _Span(msgspec.Struct, frozen=True):
    """What a seam needs of a delivered session: whose it is, and which part of the log it spans."""

    key: str
    stream: int
    first_offset: int
    last_offset: int
    log: int = 0


_decode = msgspec.json.Decoder(_Span).decode


class Seam:
    """What others' sessions cover of one stream, from the offset `start` on."""

    def __init__(self, stream: int, start: int) -> None:
        self.stream, self.start = stream, start
        self._through: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Seam of stream {self.stream} at {self.start}, {len(self._through)} keys>"

    def add(self, cut: Cut, records: Iterable[bytes]) -> None:
        """Adds sessions of the cut's group as they were delivered, of any streams; leaves out all else."""
        for raw in records:
            try:
                span = _decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # somebody else wrote it
            if span.stream != self.stream or span.log != cut.log or span.last_offset < self.start:
                continue
            if cut.holds(span.first_offset, span.log):
                self._through[span.key] = max(span.last_offset, self._through.get(span.key, -1))

    def covering(self) -> Steps[LargeDict[str, Covered]]:
        """The covered keys, in order of offset, in slices."""
        covered = LargeDict[str, Covered]()
        for part in sliced((yield from sorting(list(self._through.items()), lambda item: item[1]))):
            covered.update((key, Covered(offset=through)) for key, through in part)
            yield
        return covered
