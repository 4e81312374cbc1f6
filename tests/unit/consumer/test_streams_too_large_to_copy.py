"""Streams that cannot be handed over live: they are released and replayed, and hold up no others."""

from __future__ import annotations

import pytest

from services.consumer.core.commits.stream import Stream
from services.consumer.core.handover.rules import HandoverLimits
from services.consumer.core.handover.sent import SentCopy, copying
from services.consumer.core.slices import Steps
from services.consumer.handover import donor
from services.consumer.member.effects import DRAIN_OFFERS
from tests.fakes.virtual_time import virtual_time
from tests.unit.consumer.handover_world import HandoverWorld

LARGE = {4, 5}
MOVED = {4, 5, 6, 7}
"""What the plan gives to the second of two members, in its order."""
MAX_BODY_BYTES = 20_000


async def two_large_streams(bytes_of_each: int) -> HandoverWorld:
    """Member `a` runs eight streams; the first two that a second member will get have so many bytes open."""
    world = HandoverWorld(8)
    world.limits = HandoverLimits(max_body_bytes=MAX_BODY_BYTES)
    await world.join("a")
    await world.settled()
    world.fill()
    for stream in LARGE:
        for n in range(10):
            world.emit(f"large{n}", stream=stream, data="x" * (bytes_of_each // 10))
    await world.committed()
    return world


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The stream of each copy that is encoded."""
    streams: list[int] = []

    def counted(stream: Stream) -> Steps[tuple[bytes, SentCopy]]:
        streams.append(stream.stream)
        return copying(stream)

    monkeypatch.setattr(donor, "copying", counted)
    return streams


@virtual_time
async def test_two_large_streams_at_the_head_of_the_order_hold_up_no_others(copied: list[int]) -> None:
    """They are released and replayed without being encoded; the rest move live."""
    world = await two_large_streams(2 * MAX_BODY_BYTES)

    await world.join("b")
    await world.settled()

    assert {stream for stream, owner in world.owners().items() if owner == "b"} == MOVED
    assert set(copied) == MOVED - LARGE
    await world.finish()
    assert {event.stream for event in world.events("handover") if event.warm} == MOVED - LARGE


@virtual_time
async def test_a_stream_whose_bundle_turns_out_too_large_is_encoded_once(copied: list[int]) -> None:
    """Its fragments alone would fit, but not what the bundle holds besides."""
    world = await two_large_streams(MAX_BODY_BYTES - 300)

    await world.join("b")
    await world.settled()

    assert sorted(copied) == sorted(MOVED)
    await world.finish()
    assert {event.stream for event in world.events("handover") if event.warm} == MOVED - LARGE


@virtual_time
async def test_a_drain_releases_what_is_too_large_at_once(copied: list[int]) -> None:
    """Offering it would be in vain."""
    world = await two_large_streams(2 * MAX_BODY_BYTES)
    await world.join("b")
    await world.settled()
    copied.clear()

    await world.stop("b")
    await world.settled()

    assert set(copied) == MOVED - LARGE
    await world.finish()


@pytest.mark.parametrize(
    ("limits", "tries"),
    [
        (HandoverLimits(max_held_bytes=MAX_BODY_BYTES // 4), 3),
        (HandoverLimits(max_body_bytes=MAX_BODY_BYTES // 4), 1),
    ],
    ids=["refused each time", "rejected for good"],
)
@virtual_time
async def test_a_stream_that_is_refused_again_and_again_is_released(
    limits: HandoverLimits, tries: int, copied: list[int]
) -> None:
    """Few copies are encoded for nothing, and only one of what the recipient would never accept."""
    world = await two_large_streams(MAX_BODY_BYTES // 2)
    recipient = await world.join("b")
    recipient.member.hint_store.limits = limits

    await world.settled()

    assert {stream: copied.count(stream) for stream in LARGE} == dict.fromkeys(LARGE, tries)
    await world.finish()
    assert {event.stream for event in world.events("handover") if event.warm} == MOVED - LARGE


@virtual_time
async def test_a_drain_offers_the_same_copy_again(copied: list[int]) -> None:
    """A stream that is refused is encoded once, however often it is offered."""
    world = await two_large_streams(MAX_BODY_BYTES // 2)
    await world.join("b")
    await world.settled()
    copied.clear()
    world.peers.sent.clear()
    world.members["a"].member.hint_store.limits = HandoverLimits(max_held_bytes=0)

    await world.stop("b")
    await world.settled()

    assert sorted(copied) == sorted(MOVED)
    assert world.peers.sent.count("offer") == DRAIN_OFFERS * len(MOVED)
    await world.finish()
