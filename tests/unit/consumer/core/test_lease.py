"""When a member knows that its ZooKeeper session is alive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.consumer.core.ownership.lease import FACTOR, Lease

seconds = st.floats(0, 1e6, allow_nan=False)


@given(sent_s=seconds, travel_s=seconds, timeout_s=st.floats(1, 60), now_s=seconds)
def test_a_live_lease_means_that_no_server_has_expired_the_session(
    sent_s: float, travel_s: float, timeout_s: float, now_s: float
) -> None:
    """The server counts from when it receives a request, which is never before the member sent it."""
    lease = Lease(answered_s=sent_s, timeout_s=timeout_s)

    expires_s = sent_s + travel_s + timeout_s

    assert not lease.is_alive(now_s) or now_s < expires_s


@given(sent_s=seconds, timeout_s=st.floats(1, 60), now_s=seconds)
def test_a_member_is_alive_exactly_while_time_is_left(sent_s: float, timeout_s: float, now_s: float) -> None:
    """The time left is never negative, and 0 exactly once the member must have stopped."""
    lease = Lease(answered_s=sent_s, timeout_s=timeout_s)

    left_s = lease.left_s(now_s)

    assert left_s >= 0
    assert (left_s > 0) == lease.is_alive(now_s)
    assert not lease.is_alive(lease.end_s)


def test_a_lease_outlives_a_lost_connection() -> None:
    """A ping interval, the wait for its answer and a reconnection fit into the lease."""
    timeout_s = 6.0
    interval_s = timeout_s / 6

    assert 0.7 < FACTOR < 1
    assert Lease(answered_s=0.0, timeout_s=timeout_s).is_alive(interval_s + 2 * interval_s + 1.0)
