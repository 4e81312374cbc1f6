"""Random logs of one stream, and the lazy, crashing way to fold them, for the properties of section 4."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from services.consumer.core.checkpoint import Checkpoint, Commit, find_head, fold, new_stream
from services.consumer.core.stream import Stream, StreamLimits
from shared.group import GroupSettings
from shared.heads import Head
from shared.sessions import parse_session
from tests.reference import Rec

SETTINGS = GroupSettings(
    gap_ms=100,
    lateness_ms=30,
    idle_ms=150,
    future_ms=40,
    repeat_ms=60,
    max_session_fragments=5,
    max_session_bytes=400,
    max_session_span_ms=300,
)
"""Everything small, so that every rule bites often in a short log."""


def random_log(rng: random.Random, length: int = 60) -> list[Rec]:
    """A log with disorder, silence, repeats, ticks, markers, ends, times from the future and poison."""
    log: list[Rec] = []
    now = event = 1000
    keys = [f"k{n}" for n in range(rng.choice([1, 2, 5]))]
    for offset in range(length):
        now += rng.choice([0, 0, 1, 5, 20, 60, 160] if rng.random() < 0.9 else [-30, 400])
        event += rng.choice([0, 1, 5, 20, 60] if rng.random() < 0.9 else [140, 250])
        kind = rng.random()
        if kind < 0.04:
            log.append(Rec(offset, now, None, b"{}"))
        elif kind < 0.08:
            time = max(0, event + rng.randint(-200, 20))
            log.append(Rec(offset, now, None, b'{"time":%d}' % time))
        elif kind < 0.11:
            log.append(Rec(offset, now, rng.choice([b"k0", None]), b"poison"))
        else:
            key = rng.choice(keys)
            fields: dict[str, Any] = {"key": key}
            if rng.random() < 0.8:
                fields["time"] = max(0, event + rng.choice([0, 0, -10, -29, -80, -200, 30, 90, 300]))
            if rng.random() < 0.5:
                fields["id"] = f"i{rng.randint(0, 12)}"
            if rng.random() < 0.15:
                fields["end"] = True
            if rng.random() < 0.2:
                fields["data"] = "x" * rng.randint(0, 200)
            log.append(Rec(offset, now, key.encode(), msgspec.json.encode(fields)))
    return log


class Store:
    """What Kafka keeps of a stream: delivered sessions, checkpoint records, the head."""

    def __init__(self) -> None:
        self.sessions: list[bytes] = []
        self.records: dict[int, bytes] = {}
        self.head: Head | None = None
        self.next_offset = 0

    def commit(self, commit: Commit, rng: random.Random) -> list[int]:
        """The transaction: all of it at once. Control records leave gaps in the offsets."""
        offsets = []
        for raw in commit.records:
            self.records[self.next_offset] = raw
            offsets.append(self.next_offset)
            self.next_offset += 1
        self.next_offset += rng.choice([1, 2])
        self.sessions += [value for _, value in commit.sessions]
        self.head = commit.head_at(offsets)
        return offsets

    def load(self, rng: random.Random) -> Checkpoint:
        """What a new owner reads; now and then Kafka has forgotten the committed head."""
        records = sorted(self.records.items())
        head = find_head(records) if rng.random() < 0.2 else self.head
        if head is None:
            return new_stream()
        kept = [(offset, raw) for offset, raw in records if head.ck <= offset <= head.last]
        return fold(head, kept, SETTINGS.repeat_ms)


def fold_lazily(
    log: list[Rec], rng: random.Random, store: Store, limits: StreamLimits | None = None
) -> Stream:
    """Folds the log with random batches, noticing, parking, commits and crashes; the last owner's stream."""
    limits = limits or StreamLimits(max_replay_fragments=rng.choice([4, 12, 40, 1000]))
    epoch = 0
    while True:
        epoch += 1
        stream = Stream(
            group="g",
            stream=0,
            epoch=epoch,
            settings=SETTINGS,
            limits=limits,
            checkpoint=store.load(rng),
            now_s=0.0,
        )
        assert stream.start(0, len(log)) == "as_stored"
        while stream.assembler.position < len(log):
            at = stream.assembler.position
            stream.feed(log[at : at + rng.choice([1, 1, 3, 10])], 0.0)
            if rng.random() < 0.3:
                stream.close_due()
            if rng.random() < 0.3 and stream.has_changes:
                commit = stream.prepare_commit()
                if rng.random() < 0.1:
                    break  # dies before the transaction ends
                offsets = store.commit(commit, rng)
                below = stream.committed(commit, offsets, 0.0)
                if below is not None:
                    store.records = {o: raw for o, raw in store.records.items() if o >= below}
            if rng.random() < 0.1:
                break
        else:
            if not stream.has_changes:
                return stream
            commit = stream.prepare_commit()
            stream.committed(commit, store.commit(commit, rng), 0.0)
            return stream


def delivered_rows(store: Store) -> list[tuple[Any, ...]]:
    """The delivered sessions in the form of `RefSession.row`."""
    rows = []
    for raw in store.sessions:
        s = parse_session(raw)
        data = tuple(bytes(fragment) for fragment in s.data)
        rows.append(
            (s.key, s.first_offset, s.last_offset, s.first_time, s.last_time, s.opened_at, s.reason, data)
        )
    return rows


def difference(seed: int) -> str:
    """What the lazy way and the eager fold disagree on for the log of `seed`, or the empty string."""
    rng = random.Random(seed)
    log = random_log(rng)
    if rng.random() < 0.5:
        log.append(Rec(len(log), log[-1].timestamp, None, b'{"time":9999999}'))
    store = Store()
    stream = fold_lazily(log, rng, store)
    stream.close_due()
    if stream.has_changes:
        commit = stream.prepare_commit()
        stream.committed(commit, store.commit(commit, rng), 0.0)
    from tests.reference import fold_eagerly

    closed, open_ = fold_eagerly(log, SETTINGS)
    expected = sorted(session.row() for session in closed)
    found = sorted(delivered_rows(store))
    if expected != found:
        missing = [row for row in expected if row not in found]
        extra = [row for row in found if row not in expected]
        return f"seed {seed}: missing {missing}, extra {extra}"
    still_open = sorted((s.key, s.offsets) for s in open_)
    held = sorted((s.key, s.first_offset, s.last_offset, len(s.data)) for s in stream.assembler.open.values())
    if [(k, o[0], o[-1], len(o)) for k, o in still_open] != held:
        return f"seed {seed}: open sessions {held}, expected {still_open}"
    return ""
