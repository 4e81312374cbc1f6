"""Requests take up room beside their bodies."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.producer.http.limits import REQUEST_BYTES, Inflight, InflightShare, Overloaded
from shared.errors import BatonError


def test_a_flood_of_tiny_requests_is_bounded() -> None:
    """Each counts for what it takes up, however small its body is, until it is answered."""
    inflight = Inflight(max_bytes=20 * REQUEST_BYTES)

    def begin() -> InflightShare:
        hold = InflightShare(inflight, max_request_bytes=100)
        try:
            hold.expect(1)
            hold.add(1)
        except Overloaded:
            hold.release()
            raise
        return hold

    held = [begin() for _ in range(19)]
    with pytest.raises(Overloaded):
        begin()
    held[0].release()
    held[0].release()
    held.append(begin())

    assert (inflight.requests, inflight.bytes) == (19, 19)


BODIES = st.lists(st.lists(st.sampled_from([0, 1, 10_000, 40_000]), min_size=1, max_size=4), max_size=8)


@given(bodies=BODIES, order=st.randoms(use_true_random=False))
def test_nothing_is_left_of_requests_that_are_over(bodies: list[list[int]], order: Random) -> None:
    """Bodies that arrive in turns, whole, too large, given up or refused: the counts add up, and end at 0."""
    inflight = Inflight(max_bytes=20 * REQUEST_BYTES)
    holds = {number: InflightShare(inflight, max_request_bytes=60_000) for number in range(len(bodies))}
    given_up: set[int] = set()
    turns = [number for number, chunks in enumerate(bodies) for _ in chunks]
    order.shuffle(turns)
    left = {number: list(chunks) for number, chunks in enumerate(bodies)}

    for number in turns:
        if number in holds and number not in given_up:
            hold, chunks = holds[number], left[number]
            try:
                is_first = len(chunks) == len(bodies[number])
                hold.add(chunks.pop())
                if is_first and chunks:
                    hold.arrives(lambda number=number: given_up.add(number))  # type: ignore[misc]
                elif not chunks:
                    hold.arrived()
            except BatonError:
                holds.pop(number).release()
        for gone in given_up & holds.keys():
            holds.pop(gone).release()
        assert 0 <= inflight.arriving_bytes <= inflight.max_bytes // 2
        assert inflight.arriving_bytes <= inflight.bytes
    for hold in holds.values():
        hold.release()

    assert (inflight.bytes, inflight.requests, inflight.arriving_bytes, inflight.arriving) == (0, 0, 0, {})
