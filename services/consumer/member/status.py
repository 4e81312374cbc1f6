"""What a member reports about itself: `/status`, and the rates in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from services.consumer.member.member import Member
from services.consumer.stream.worker import StreamWorker
from shared.model.cluster import MemberNode


def stream_status(worker: StreamWorker) -> dict[str, Any]:
    """One running stream."""
    core = worker.core
    row: dict[str, Any] = {
        "stream": worker.stream,
        "epoch": worker.epoch,
        "state": worker.state,
        **worker.retries.status,
        "position": worker.position,
        "end": worker.end,
        "committed_at": worker.timeline.committed_at_ms,
        "opened_ms": round(worker.timeline.opened_after_s * 1000, 1),
        "first_record_ms": round(worker.timeline.first_record_after_s * 1000, 1),
        "counts": msgspec.structs.asdict(worker.counts),
    }
    if core is not None:
        row |= {
            "committed": core.head.position,
            "safe_offset": core.head.safe_offset,
            "seq": core.head.seq,
            "open_sessions": core.open_sessions,
            "state_bytes": core.state_bytes,
            "covered": core.covered_keys,
            "remembered_ids": core.remembered_ids,
            "checkpoint_bytes": core.checkpoint_bytes,
            "warm": worker.is_warm,
            "cut": core.cut,
            "log_compared": core.last_record.comparison,
            "last_unreadable": core.last_unreadable,
        }
    return row


def member_status(
    joined: Sequence[Member], member_id: str, group: str, node: MemberNode, rates: Rates
) -> dict[str, Any]:
    """The body of `GET /status`; `joined` is empty until the member has joined."""
    member = joined[0] if joined else None
    session_id = member.coordinator.session_id if member is not None else None
    lease = member.coordinator.lease if member is not None else None
    workers = member.workers if member is not None else []
    return {
        "id": member_id,
        "group": group,
        "address": node.address,
        "pid": node.pid,
        "state": member.state if member is not None else "joining",
        "since": node.since,
        "lease_ms": member.lease_ms if member is not None else 0,
        "lease_length_ms": None if lease is None else int(lease.length_s * 1000),
        "zookeeper_session": hex(session_id) if session_id is not None else None,
        "paused": member is not None and member.is_paused,
        "rates": rates.now(workers),
        "streams": [stream_status(worker) for worker in workers],
    }


class Rates:
    """Fragments, bytes and sessions per second, averaged over about `WINDOW_S`."""

    WINDOW_S = 5.0

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._at_s = now_s()
        self._before: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._rates = {"fragments_per_s": 0.0, "bytes_per_s": 0.0, "sessions_per_s": 0.0}

    def now(self, workers: Sequence[StreamWorker]) -> dict[str, float]:
        """The rates, measured again if the last measurement is old enough."""
        passed_s = self._now_s() - self._at_s
        if passed_s >= self.WINDOW_S:
            totals = {
                (worker.stream, worker.epoch): (counts.fragments, counts.bytes, counts.sessions)
                for worker in workers
                if (counts := worker.counts)
            }
            grown = [
                sum(
                    max(0, now[i] - self._before[key][i])
                    for key, now in totals.items()
                    if key in self._before
                )
                for i in range(3)
            ]
            self._rates = dict(zip(self._rates, (round(g / passed_s, 1) for g in grown), strict=True))
            self._before, self._at_s = totals, self._now_s()
        return self._rates
