"""What every `Rejects` guarantees the HTTP door, run against Kafka (integration) and the twin (unit).

A test module subclasses `RejectsContract` and provides the fixture `world`: a `Rejects` whose topic is
unavailable at first, which keeps at most 100,000 bytes until then, and whose shares are of SHARE_BYTES.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from services.producer.core.ingest import Rejected
from services.producer.ports import Rejects
from shared.model.rejects import MAX_DETAIL_BYTES, MAX_KEPT_BYTES, Reject

SHARE_BYTES = 200_000


class RejectsWorld(ABC):
    """A `Rejects` and the topic behind it."""

    rejects: Rejects

    @abstractmethod
    async def come_back(self) -> None:
        """Makes the topic writable."""

    @abstractmethod
    async def kept(self, count: int) -> Sequence[Reject]:
        """Waits until the topic has `count` rejects, and returns all of them."""


def refused(index: int, reason: str = "time", detail: str = "why") -> Rejected:
    """A rejected item, with its index in the request."""
    return Rejected(index=index, reason=reason, detail=detail)


class RejectsContract:
    """Rejects are stored as posted, with their reasons; while they cannot be, a bounded number waits."""

    async def test_a_rejected_value_is_stored_as_posted(self, world: RejectsWorld) -> None:
        """Byte for byte, with its reason, detail, index in the request and size."""
        await world.come_back()

        world.rejects.put(
            [refused(3, "time", "„x“ is not a time"), refused(7, "key")], [b'{"a": 1}', b"\xff\x00"]
        )

        assert await world.kept(2) == [
            Reject(value=b'{"a": 1}', reason="time", detail="„x“ is not a time", size=8, index=3),
            Reject(value=b"\xff\x00", reason="key", detail="why", size=2, index=7),
        ]
        assert (world.rejects.counts.stored, world.rejects.counts.cut) == (2, 0)

    async def test_a_long_value_is_cut_and_counted(self, world: RejectsWorld) -> None:
        """Up to 32 KB are stored whole, of more the first 32 KB; `size` is the posted size."""
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

    async def test_an_unwritable_detail_does_not_raise(self, world: RejectsWorld) -> None:
        """Such as half of a surrogate pair, far too often."""
        await world.come_back()

        world.rejects.put([refused(0, "id", "\ud800" * 1000), refused(1)], [b"", b"{}"])

        odd, plain = await world.kept(2)
        assert (odd.value, plain.value) == (b"", b"{}")
        assert len(odd.detail) <= 1000
        assert MAX_DETAIL_BYTES < 1000

    async def test_rejects_wait_while_the_topic_is_unavailable(self, world: RejectsWorld) -> None:
        """Rejects beyond the bound are dropped and counted; the rest are stored once the topic is back."""
        values = [b"%02d" % number + b"x" * 30_000 for number in range(20)]

        world.rejects.put([refused(number) for number in range(20)], values)
        dropped = world.rejects.counts.dropped
        await world.come_back()

        assert dropped == 17
        assert [reject.index for reject in await world.kept(3)] == [0, 1, 2]
        assert (world.rejects.counts.stored, world.rejects.counts.dropped) == (3, 17)

    async def test_a_reason_that_has_used_its_share_is_counted_only(self, world: RejectsWorld) -> None:
        """A flood of one reason neither fills the topic nor keeps others out."""
        await world.come_back()

        for number in range(9):
            world.rejects.put([refused(number, "time")], [b"x" * 30_000])
            await world.kept(min(number + 1, 6))
        world.rejects.put([refused(0, "key")], [b"x" * 30_000])

        found = await world.kept(7)
        assert [reject.reason for reject in found] == ["time"] * 6 + ["key"]
        assert world.rejects.counts.over_share == {"time": 3}
        assert (world.rejects.counts.stored, world.rejects.counts.dropped) == (7, 0)
