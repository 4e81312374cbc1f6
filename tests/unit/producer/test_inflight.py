"""Requests take up room beside their bodies."""

from __future__ import annotations

import pytest

from services.producer.inflight import REQUEST_BYTES, Hold, Inflight, Overloaded


def test_a_flood_of_tiny_requests_is_bounded() -> None:
    """Each counts for what it takes up, however small its body is, until it is answered."""
    inflight = Inflight(max_bytes=20 * REQUEST_BYTES)

    def begin() -> Hold:
        hold = Hold(inflight, max_request_bytes=100)
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
