"""The shares of the topic of rejects, by reason and writer: a flood pushes out nothing that is kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.producer.__main__ import Producer
from services.producer.core.ingest import Rejected
from services.producer.core.reject_shares import RejectShares
from services.producer.settings import ProducerSettings
from shared.kafka.admin.topics import REJECTED_RETENTION_BYTES, REJECTED_RETENTION_MS, REJECTED_SEGMENT_MS
from shared.model.rejects import FRAGMENT_REASONS, MAX_KEPT_BYTES, UNREADABLE

DAY_S = 86_400
HOUR_S = 3_600
SHARE, REFILL_S = 1_000, 5 * DAY_S
WRITERS = ("", "page", "importer")
REASONS = (*FRAGMENT_REASONS, UNREADABLE)
PUTS = st.lists(
    st.tuples(
        st.tuples(st.sampled_from(["time", "size"]), st.sampled_from(WRITERS)),
        st.integers(1, 400),
        st.floats(0, DAY_S),
    ),
    max_size=60,
)


def shares_of(share: int = SHARE, writers: int = len(WRITERS)) -> RejectShares:
    """Full shares."""
    return RejectShares(share_bytes=share, refill_s=REFILL_S, writers=lambda: writers)


@given(puts=PUTS)
def test_a_writer_stores_no_more_than_its_part_and_what_has_come_back(
    puts: list[tuple[tuple[str, str], int, float]],
) -> None:
    """In any span of time; and what there is room for is stored, whatever others and other reasons do."""
    shares, now_s = shares_of(), 0.0
    stored: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for (reason, writer), size, pause_s in puts:
        now_s += pause_s
        alone = shares_of()
        taken = stored.setdefault((reason, writer), [])
        assert all(alone.take(reason, earlier, at_s, writer) for at_s, earlier in taken)
        is_stored = shares.take(reason, size, now_s, writer)
        assert is_stored == alone.take(reason, size, now_s, writer)
        if is_stored:
            taken.append((now_s, size))

    for taken in stored.values():
        for first, (began_s, _) in enumerate(taken):
            sizes = 0
            for at_s, size in taken[first:]:
                sizes += size
                assert sizes <= SHARE / len(WRITERS) * (1 + (at_s - began_s) / REFILL_S) + 0.001


def test_a_share_comes_back_evenly() -> None:
    """After half of the time half of it, after more than all of the time no more than all of it."""
    shares = shares_of(writers=1)

    found = [
        shares.take("time", size, days * DAY_S)
        for days, size in [(0, 1_000), (0, 1), (2.5, 501), (2.5, 500), (99, 1_001), (99, 1_000), (99, 1)]
    ]

    assert found == [True, False, False, True, False, True, False]


def test_a_flood_of_every_reason_at_four_producers_pushes_nothing_out_before_its_time() -> None:
    """With the default setting, although each of them starts again within the time of a record."""
    share = ProducerSettings().reject_share_bytes
    hours = (REJECTED_RETENTION_MS + REJECTED_SEGMENT_MS) // (HOUR_S * 1_000)
    stored = 0
    for writers in (1, 1, 2, 3):  # of each producer
        for hour in range(hours + 1):
            if hour in (0, hours // 2):
                shares = shares_of(share, writers)
            for reason in REASONS:
                for writer in WRITERS[:writers]:
                    while shares.take(reason, MAX_KEPT_BYTES, hour * HOUR_S, writer):
                        stored += MAX_KEPT_BYTES

    assert stored < REJECTED_RETENTION_BYTES


async def test_a_key_cannot_use_up_what_others_may_store() -> None:
    """The named keys that may write divide the share of a reason, in the file and in the setting."""
    keys = "k1 name=page,k2 name=page,k3 name=importer,k4 mark name=closer"
    rejects = Producer(ProducerSettings(write_keys=keys, reject_share_bytes=4 * 1024 * 1024))._rejects
    value = b"x" * 30_000

    for _ in range(300):
        rejects.put([Rejected(index=0, reason="time", detail="")], [value], "page")
    flooded = rejects.counts.over_share["time"]
    for _ in range(69):
        rejects.put([Rejected(index=0, reason="time", detail="")], [value], "importer")

    assert flooded == 300 - 69
    assert rejects.counts.over_share["time"] == flooded
    assert rejects.counts.dropped == 0
