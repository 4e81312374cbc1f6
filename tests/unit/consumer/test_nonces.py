"""The memory of nonces: each signed request is accepted once, in bounded memory."""

from __future__ import annotations

import pytest

from services.consumer.handover.nonces import Nonces
from shared.errors import Unauthorized, Unavailable
from shared.service.signing import ACCEPTED_MS, Envelope

START_MS = 1_000_000


def sealed(nonce: str, at_ms: int) -> Envelope:
    """A valid envelope with this nonce and time."""
    return Envelope(
        sender="control",
        recipient="m1",
        namespace="",
        group="default",
        at_ms=at_ms,
        nonce=nonce,
        method="POST",
        target="/drain",
        digest="",
        length=0,
    )


@pytest.mark.parametrize("later_ms", [0, 1000, ACCEPTED_MS, 10 * ACCEPTED_MS])
def test_a_nonce_is_accepted_once(later_ms: int) -> None:
    """Even if its envelope has expired meanwhile, and the clock was then set back."""
    nonces, request = Nonces(START_MS), sealed("n", START_MS + 5)
    nonces.accept(request, START_MS + 6)
    nonces.accept(sealed("other", START_MS + later_ms + 7), START_MS + later_ms + 7)

    for now_ms in (START_MS + later_ms + 7, START_MS + 6):
        with pytest.raises(Unauthorized, match=r"replay|too long ago"):
            nonces.accept(request, now_ms)


def test_a_request_to_the_previous_process_is_not_accepted_again() -> None:
    """The new process does not know the nonces of its predecessor, which had the same id."""
    with pytest.raises(Unauthorized, match="before this member started"):
        Nonces(START_MS).accept(sealed("n", START_MS - 10), START_MS + 50)


def test_the_memory_is_bounded_and_forgets_what_has_expired() -> None:
    """When it is full it refuses, instead of forgetting a nonce that is still valid."""
    nonces = Nonces(START_MS, most=2)
    for n in (1, 2):
        nonces.accept(sealed(f"n{n}", START_MS + n), START_MS + n)

    with pytest.raises(Unavailable, match="too many requests"):
        nonces.accept(sealed("n3", START_MS + 3), START_MS + 3)
    later_ms = START_MS + ACCEPTED_MS + 10
    nonces.accept(sealed("n4", later_ms), later_ms)
    assert "1, all up to" in repr(nonces)
