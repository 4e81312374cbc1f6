"""The share that each reason has of the topic of rejects: a flood pushes out nothing that is kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.producer.core.reject_shares import RejectShares
from services.producer.settings import ProducerSettings
from shared.kafka.topics import REJECTED_RETENTION_BYTES, REJECTED_RETENTION_MS, REJECTED_SEGMENT_MS
from shared.model.rejects import FRAGMENT_REASONS, UNREADABLE

DAY_S = 86_400
SHARE, REFILL_S = 1_000, 5 * DAY_S
PUTS = st.lists(
    st.tuples(st.sampled_from(["time", "size"]), st.integers(1, 400), st.floats(0, DAY_S)), max_size=60
)


@given(puts=PUTS)
def test_a_reason_stores_no_more_than_its_share_and_what_has_come_back(
    puts: list[tuple[str, int, float]],
) -> None:
    """In any span of time; and what there is room for is stored, whatever other reasons do."""
    shares, now_s = RejectShares(share_bytes=SHARE, refill_s=REFILL_S), 0.0
    stored: dict[str, list[tuple[float, int]]] = {"time": [], "size": []}
    for reason, size, pause_s in puts:
        now_s += pause_s
        alone = RejectShares(share_bytes=SHARE, refill_s=REFILL_S)
        assert all(alone.take(reason, earlier, at_s) for at_s, earlier in stored[reason])
        is_stored = shares.take(reason, size, now_s)
        assert is_stored == alone.take(reason, size, now_s)
        if is_stored:
            stored[reason].append((now_s, size))

    for taken in stored.values():
        for first, (began_s, _) in enumerate(taken):
            sizes = 0
            for at_s, size in taken[first:]:
                sizes += size
                assert sizes <= SHARE * (1 + (at_s - began_s) / REFILL_S) + 0.001


def test_a_share_comes_back_evenly() -> None:
    """After half of the time half of it, after more than all of the time no more than all of it."""
    shares = RejectShares(share_bytes=SHARE, refill_s=REFILL_S)

    found = [
        shares.take("time", size, days * DAY_S)
        for days, size in [(0, 1_000), (0, 1), (2.5, 501), (2.5, 500), (99, 1_001), (99, 1_000), (99, 1)]
    ]

    assert found == [True, False, False, True, False, True, False]


def test_a_flood_of_every_reason_pushes_nothing_out_before_its_time() -> None:
    """A producer with the default setting fills less than the topic keeps, as long as it keeps anything."""
    share = ProducerSettings().reject_share_bytes
    kept_ms = REJECTED_RETENTION_MS + REJECTED_SEGMENT_MS
    reasons = {*FRAGMENT_REASONS, UNREADABLE}

    assert len(reasons) * share * (1 + kept_ms / REJECTED_RETENTION_MS) < REJECTED_RETENTION_BYTES
