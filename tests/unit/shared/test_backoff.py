"""The delays of a Backoff grow up to a cap, with jitter, and start again after a success."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.backoff import Backoff


@given(
    failures=st.integers(1, 200), jitter=st.floats(0, 1), first_s=st.floats(0.01, 1), cap_s=st.floats(1, 60)
)
def test_a_delay_is_between_half_and_all_of_the_full_one(
    failures: int, jitter: float, first_s: float, cap_s: float
) -> None:
    """The n-th delay is first * 2^(n-1), at most the cap, and at least half of that."""
    backoff = Backoff(first_s=first_s, cap_s=cap_s, uniform=lambda: jitter)

    delays = [backoff.next_s() for _ in range(failures)]

    for number, delay in enumerate(delays):
        full = min(cap_s, first_s * 2.0**number)
        assert full / 2 <= delay <= full


def test_reset_starts_again_with_the_first_delay() -> None:
    """After a success the failures before it no longer count."""
    backoff = Backoff(first_s=1.0, cap_s=60.0, uniform=lambda: 1.0)
    delays = [backoff.next_s() for _ in range(4)]

    backoff.reset()

    assert delays == [1.0, 2.0, 4.0, 8.0]
    assert backoff.next_s() == 1.0
