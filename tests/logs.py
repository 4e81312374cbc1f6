"""Random logs of one stream, and the lazy, crashing, moving way to fold them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from services.consumer.core.commits.checkpoint import Checkpoint, find_head, folding_records, new_stream
from services.consumer.core.commits.commit import Commit
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.handover.received import Copy, completing, opening_copy
from services.consumer.core.handover.rules import is_valid
from services.consumer.core.handover.sent import SentCopy, copying, taking_delta
from services.consumer.core.slices import at_once
from shared.model.group import GroupSettings
from shared.model.head import Head
from shared.model.sessions import parse_session
from tests.reference import Rec, delivered_row, fold_eagerly

FAULT_SEEDS = 2_000
"""Every planted fault must show within this many random logs."""

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
    """A log with disorder, silence, repeats, ticks, markers, ends, times from the future and poison.

    Half of the logs have so few ids that most fragments are repeats.
    """
    log: list[Rec] = []
    ids, share_with_id = rng.choice([(13, 0.5), (4, 0.9)])
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
            if rng.random() < share_with_id:
                fields["id"] = f"i{rng.randrange(ids)}"
            if rng.random() < 0.15:
                fields["end"] = True
            if rng.random() < 0.2:
                fields["data"] = "x" * rng.randint(0, 200)
            log.append(Rec(offset, now, key.encode(), msgspec.json.encode(fields)))
    return log


def commit_of(stream: Stream) -> Commit:
    """The commit of all that changed; the stream must have changes."""
    (commit,) = stream.turn((), now_s=0.0, wall_ms=0, commit_s=0.0).effects
    assert isinstance(commit, Commit)
    return commit


class Store:
    """What Kafka keeps of a stream of a group: delivered sessions, checkpoint records, the head.

    `begin`: where an owner begins that finds no head.
    """

    def __init__(
        self,
        group: str = "g",
        settings: GroupSettings = SETTINGS,
        begin: Callable[[], Checkpoint] = new_stream,
    ) -> None:
        self.group, self.settings, self.begin = group, settings, begin
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
            return self.begin()
        kept = [(offset, raw) for offset, raw in records if head.checkpoint_from <= offset <= head.newest]
        return at_once(folding_records(head, kept, self.settings.repeat_ms))


class Owner:
    """One owner after the other of a stream whose log is there in full.

    `sent`: a first copy that is on its way while the stream runs; `loads` and `moves` count how many owners
    began from the checkpoint and from memory.
    """

    def __init__(self, log: list[Rec], rng: random.Random, store: Store, limits: StreamLimits) -> None:
        self.log, self.rng, self.store, self.limits = log, rng, store, limits
        self.epoch = 1
        self.sent: tuple[bytes, SentCopy] | None = None
        self.loads = self.moves = 0
        self.stream = self.load()

    def load(self) -> Stream:
        """The stream from its stored checkpoint."""
        self.loads += 1
        return Stream(
            group=self.store.group,
            stream=0,
            epoch=self.epoch,
            settings=self.store.settings,
            limits=self.limits,
            checkpoint=self.store.load(self.rng),
            now_s=0.0,
        )

    def run(self) -> bool:
        """Reads, notices, parks and commits; whether it came to the end of the log, with all committed."""
        rng, stream = self.rng, self.stream
        self.sent = None
        while stream.position < len(self.log):
            at = stream.position
            stream.fold(self.log[at : at + rng.choice([1, 1, 3, 10])], 0.0)
            if rng.random() < 0.3:
                stream.turn((), now_s=0.0, wall_ms=0, commit_s=None)  # only looks for silence
            if rng.random() < 0.2:
                self.sent = at_once(copying(stream))
            if rng.random() < 0.3 and stream.has_changes and not self.commit(lost=rng.random() < 0.15):
                return False
            if rng.random() < 0.15:
                return False
        return not stream.has_changes or self.commit()

    def commit(self, *, lost: bool = False) -> bool:
        """Commits; whether that is known to have succeeded. One that is lost may or may not have."""
        commit = commit_of(self.stream)
        opened = [session.first_offset for session in self.stream.assembler.open.values()]
        assert commit.head.oldest == min(opened, default=-1)
        if lost and self.rng.random() < 0.5:
            return False
        offsets = self.store.commit(commit, self.rng)
        if lost:
            return False
        below = self.stream.committed(commit, offsets, 0.0)
        if below is not None:
            self.store.records = {o: raw for o, raw in self.store.records.items() if o >= below}
        return True

    def succeed(self) -> None:
        """The next owner begins: by copy and delta, a whole bundle, its own memory, or a load."""
        self.epoch += 1
        hint = self._hint(self.rng.choice(["copy", "whole", "memory", "load"]))
        if hint is not None and is_valid(hint, self.store.head or new_stream().head):
            self.moves += 1
            self.stream = hint
            hint.resume(self.epoch, 0.0)
        else:
            self.stream = self.load()
        assert self.stream.start(0, len(self.log)) == "as_stored"

    def _hint(self, how: str) -> Stream | None:
        if how == "load" or not self.stream.is_memory:
            return None
        if how == "memory":
            return self.stream
        if self.stream.has_changes and self.rng.random() < 0.3:
            self.commit()
        if how == "copy" and self.sent is not None:
            body, base = self.sent
            return self._received(
                at_once(opening_copy(body, base.digest)), at_once(taking_delta(self.stream, base))
            )
        return self._received(None, at_once(taking_delta(self.stream, None)))

    def _received(self, copy: Copy | None, delta: bytes) -> Stream:
        store = self.store
        return received(copy, delta, self.limits, store.group, store.settings)


def fragment(offset: int, key: str, size: int = 0) -> Rec:
    """A plain record of a log, which ends nothing."""
    return Rec(offset, 1000 + offset, key.encode(), msgspec.json.encode({"key": key, "data": "x" * size}))


def owner_of(*records: Rec) -> Owner:
    """An owner that has read these records and committed nothing."""
    owner = Owner(list(records), random.Random(0), Store(), StreamLimits())
    owner.stream.fold(owner.log, 0.0)
    return owner


def received(
    copy: Copy | None,
    delta: bytes,
    limits: StreamLimits,
    group: str = "g",
    settings: GroupSettings = SETTINGS,
) -> Stream:
    """What a recipient makes of a delta."""
    return at_once(
        completing(copy, delta, group=group, stream=0, settings=settings, limits=limits, now_s=0.0)
    )


def fold_lazily(
    log: list[Rec], rng: random.Random, store: Store, limits: StreamLimits | None = None
) -> Stream:
    """Folds the log with random batches, noticing, parking, commits, crashes and moves; the last owner's
    stream.
    """
    limits = limits or StreamLimits(max_replay_fragments=rng.choice([4, 12, 40, 1000]))
    owner = Owner(log, rng, store, limits)
    while not owner.run():
        owner.succeed()
    return owner.stream


def close_silence(stream: Stream, store: Store, rng: random.Random) -> None:
    """Delivers what silence has ended, part by part."""
    while effects := stream.turn((), now_s=0.0, wall_ms=0, commit_s=0.0).effects:
        for commit in effects:
            assert isinstance(commit, Commit)
            stream.committed(commit, store.commit(commit, rng), 0.0)


def delivered_rows(store: Store) -> list[tuple[Any, ...]]:
    """The delivered sessions in the form of `RefSession.row`."""
    return [delivered_row(parse_session(raw)) for raw in store.sessions]


def difference(seed: int) -> str:
    """What the lazy way and the eager fold disagree on for the log of `seed`, or the empty string."""
    rng = random.Random(seed)
    log = random_log(rng)
    if rng.random() < 0.5:
        log.append(Rec(len(log), log[-1].timestamp, None, b'{"time":9999999}'))
    store = Store()
    stream = fold_lazily(log, rng, store)
    close_silence(stream, store, rng)
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


def is_found(shows: Callable[[int], object]) -> bool:
    """Whether a planted fault shows in some random log, by what `shows` returns or by an error."""
    for seed in range(FAULT_SEEDS):
        try:
            if shows(seed):
                return True
        except Exception:  # a broken rule may also raise InvariantBroken, InvalidInput or BundleRejected
            return True
    return False
