"""What every keeper of rejects promises the door, run against Kafka (integration) and the twin (unit).

A test module subclasses `RejectsContract` and gives the fixture `world`: rejects whose topic is away at
first; at most 100,000 of its bytes may wait meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from services.producer.core.ingest import Rejected
from services.producer.ports import Rejects
from shared.model.rejects import MAX_DETAIL_BYTES, MAX_KEPT_BYTES, Reject


class RejectsWorld(ABC):
    """A keeper of rejects and the topic behind it."""

    rejects: Rejects

    @abstractmethod
    async def come_back(self) -> None:
        """Lets the topic be written to."""

    @abstractmethod
    async def kept(self, count: int) -> Sequence[Reject]:
        """All rejects of the topic, once there are `count`."""


def refused(index: int, reason: str = "time", detail: str = "why") -> Rejected:
    """A refusal with its place in the request."""
    return Rejected(index=index, reason=reason, detail=detail)


class RejectsContract:
    """Kept as posted, with what is known of it; bounded and counted while nothing can be written."""

    async def test_what_is_refused_is_kept_as_it_was_posted(self, world: RejectsWorld) -> None:
        """Byte for byte, with reason, detail, place in the request and size."""
        await world.come_back()

        world.rejects.put(
            [refused(3, "time", "„x“ is no time"), refused(7, "key")], [b'{"a": 1}', b"\xff\x00"]
        )

        assert await world.kept(2) == [
            Reject(value=b'{"a": 1}', reason="time", detail="„x“ is no time", size=8, index=3),
            Reject(value=b"\xff\x00", reason="key", detail="why", size=2, index=7),
        ]
        assert (world.rejects.counts.stored, world.rejects.counts.cut) == (2, 0)

    async def test_what_is_too_long_is_cut_and_counted(self, world: RejectsWorld) -> None:
        """32 KB are kept whole, of more the first 32 KB; the size is that of what was posted."""
        await world.come_back()

        sizes = (MAX_KEPT_BYTES, MAX_KEPT_BYTES + 1)
        for size in sizes:
            world.rejects.put([refused(0, "size")], [b"x" * size])
            await world.kept(size - MAX_KEPT_BYTES + 1)

        found = await world.kept(2)
        assert [(len(reject.value), reject.size, reject.is_cut) for reject in found] == [
            (MAX_KEPT_BYTES, sizes[0], False),
            (MAX_KEPT_BYTES, sizes[1], True),
        ]
        assert world.rejects.counts.cut == 1

    async def test_a_detail_that_cannot_be_written_is_no_reason_to_raise(self, world: RejectsWorld) -> None:
        """Half a surrogate pair, and far too much text."""
        await world.come_back()

        world.rejects.put([refused(0, "id", "\ud800" * 1000), refused(1)], [b"", b"{}"])

        odd, plain = await world.kept(2)
        assert (odd.value, plain.value) == (b"", b"{}")
        assert len(odd.detail) <= 1000
        assert MAX_DETAIL_BYTES < 1000

    async def test_while_the_topic_is_away_what_fits_waits(self, world: RejectsWorld) -> None:
        """What comes beyond the bound is dropped and counted; the rest is kept when the topic is back."""
        values = [b"%02d" % number + b"x" * 30_000 for number in range(20)]

        world.rejects.put([refused(number) for number in range(20)], values)
        dropped = world.rejects.counts.dropped
        await world.come_back()

        assert dropped == 17
        assert [reject.index for reject in await world.kept(3)] == [0, 1, 2]
        assert (world.rejects.counts.stored, world.rejects.counts.dropped) == (3, 17)
