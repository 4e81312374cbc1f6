"""The bound on what is in flight: requests count besides their bodies; nothing remains of finished ones."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import BatonError
from shared.service.inflight import REQUEST_BYTES, Inflight, InflightShare, Overloaded


def test_a_flood_of_tiny_requests_is_bounded() -> None:
    """Each counts for what it occupies, however small its body is, until it is answered."""
    inflight = Inflight(max_bytes=20 * REQUEST_BYTES)

    def begin() -> InflightShare:
        share = InflightShare(inflight, max_request_bytes=100)
        try:
            share.check_announced(1)
            share.add(1)
        except Overloaded:
            share.release()
            raise
        return share

    held = [begin() for _ in range(19)]
    with pytest.raises(Overloaded):
        begin()
    held.pop().release()
    held.append(begin())

    assert (inflight.requests, inflight.bytes) == (19, 19)
    assert [inflight.is_full(more) for more in (REQUEST_BYTES - 19, REQUEST_BYTES - 18)] == [False, True]


BODIES = st.lists(st.lists(st.sampled_from([0, 1, 10_000, 40_000]), min_size=1, max_size=4), max_size=8)


@given(bodies=BODIES, order=st.randoms(use_true_random=False))
def test_nothing_remains_of_finished_requests(bodies: list[list[int]], order: Random) -> None:
    """Bodies arrive in turns, are too large, dropped, or rejected: the counts add up, and end at 0."""
    inflight = Inflight(max_bytes=20 * REQUEST_BYTES)
    shares = {number: InflightShare(inflight, max_request_bytes=60_000) for number in range(len(bodies))}
    dropped: set[int] = set()
    turns = [number for number, chunks in enumerate(bodies) for _ in chunks]
    order.shuffle(turns)
    left = {number: list(chunks) for number, chunks in enumerate(bodies)}

    for number in turns:
        if number in shares and number not in dropped:
            share, chunks = shares[number], left[number]
            try:
                is_first = len(chunks) == len(bodies[number])
                share.add(chunks.pop())
                if is_first and chunks:
                    share.begin_upload(lambda number=number: dropped.add(number))  # type: ignore[misc]
                elif not chunks:
                    share.end_upload()
            except BatonError:
                shares.pop(number).release()
        for gone in dropped & shares.keys():
            shares.pop(gone).release()
        assert 0 <= inflight.uploading_bytes <= inflight.max_bytes // 2
        assert inflight.uploading_bytes <= inflight.bytes
    for share in shares.values():
        share.release()

    assert (inflight.bytes, inflight.requests, inflight.uploading_bytes, inflight.uploads) == (0, 0, 0, {})
