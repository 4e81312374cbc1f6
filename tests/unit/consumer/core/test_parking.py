"""Parking: how much one commit writes, which sessions first, and that replays stay bounded meanwhile."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import pytest

from services.consumer.core.commits import parking
from services.consumer.core.commits import writer as checkpoint_writer
from services.consumer.core.commits.checkpoint import new_stream
from services.consumer.core.commits.checkpoint_format import ID_BYTES, decode_record
from services.consumer.core.commits.commit import Commit
from services.consumer.core.commits.parking import GAIN, choose, is_replay_long, size_of
from services.consumer.core.commits.read_marks import ReadMarks
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.sessions.assembly import Assembler
from services.consumer.core.sessions.covered import CoveredKeys
from services.consumer.core.sessions.open_table import OpenTable
from services.consumer.core.sessions.state import OpenSession
from shared.model.group import GroupSettings
from tests.logs import fragment
from tests.reference import Rec

MAX_PARKED = 40_000
MAX_REPLAY = 1_000_000
"""As by default, scaled down: a commit parks 4 % of what may be replayed."""
CHUNK = MAX_PARKED // 4
BATCH = 40_000
LARGEST = 1_550
"""What one fetch brings, 4 MB of 100 MB by default, and the largest fragment below."""
BATCH_FRAGMENTS = 400
MAX_REPLAY_FRAGMENTS = 20_000
"""A fetch brings 2 % of what may be replayed, too."""
SETTINGS = GroupSettings(repeat_ms=0, max_session_bytes=9_000)
LIMITS = StreamLimits(max_replay_bytes=MAX_REPLAY, max_replay_fragments=MAX_REPLAY_FRAGMENTS)


@pytest.fixture(autouse=True)
def small_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "MAX_PARKED_BYTES", MAX_PARKED)
    monkeypatch.setattr(parking, "SESSION_BYTES", 0)
    monkeypatch.setattr(checkpoint_writer, "MAX_CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(checkpoint_writer, "MIN_WHOLE_BYTES", MAX_PARKED // 16)


def open_session(key: str, pin: int, *sizes: int, parked: int = 0, ids: int = 0) -> OpenSession:
    """A session with fragments of these sizes, the first `parked` of them in the checkpoint."""
    session = OpenSession(key, pin, 0, 0, 0, 0)
    session.data = [b"x" * size for size in sizes]
    session.bytes, session.parked = sum(sizes), parked
    session.ids = dict.fromkeys(range(ids)) or None
    return session


def keys(sessions: list[OpenSession]) -> list[str]:
    return [session.key for session in sessions]


def parked_by(commit: Commit) -> int:
    """Bytes of fragments that a commit wrote as parked."""
    parts = [part for raw in commit.records for part in decode_record(raw).parked]
    return sum(len(fragment) for part in parts for fragment in part.fragments)


@pytest.mark.parametrize(
    ("parked_ids", "rewrites", "fragments", "ids"),
    [(0, False, 50, 6), (2, False, 50, 4), (2, True, 80, 6)],
)
def test_parking_costs_what_it_writes(parked_ids: int, rewrites: bool, fragments: int, ids: int) -> None:
    """Fragments and ids that are not in the checkpoint yet; a whole set writes all of them again."""
    session = open_session("k", 0, 30, 20, 30, parked=1, ids=6)
    session.parked_ids = parked_ids

    assert size_of(session, rewrites=rewrites) == fragments + ID_BYTES * ids


class FastLog:
    """A stream that is read at full speed. Time stands still, so it commits only when it must."""

    def __init__(self) -> None:
        self.stream = Stream(
            group="default",
            stream=0,
            epoch=1,
            settings=SETTINGS,
            limits=LIMITS,
            checkpoint=new_stream(),
            now_s=0.0,
        )
        self.read_at = [0]
        """Bytes below each offset."""
        self.commits: list[Commit] = []
        self.replays: list[int] = []
        self.replayed_fragments: list[int] = []
        """After each batch, how many bytes and fragments a new owner would replay."""

    def read(self, next_fragment: Callable[[], tuple[str, int]], fragments: int) -> None:
        """Feeds batches as a fetch returns them, and commits when a commit is due."""
        batch: list[Rec] = []
        size = 0
        for _ in range(fragments):
            key, pad = next_fragment()
            value = f'{{"key":"{key}","data":"{"x" * pad}"}}'.encode()
            batch.append(Rec(len(self.read_at) - 1, 1_000, key.encode(), value))
            self.read_at.append(self.read_at[-1] + len(value))
            size += len(value)
            if size >= BATCH or len(batch) >= BATCH_FRAGMENTS:
                self._take(batch)
                batch, size = [], 0

    def _take(self, batch: list[Rec]) -> None:
        stream = self.stream
        stream.fold(batch, 0.0)
        position, safe_offset = stream.position, stream.head.safe_offset
        self.replays.append(self.read_at[position] - self.read_at[safe_offset])
        self.replayed_fragments.append(position - safe_offset)
        for commit in stream.turn((), now_s=0.0, wall_ms=0, commit_s=1.0).effects:
            assert isinstance(commit, Commit)
            self.commits.append(commit)
            first = sum(len(earlier.records) for earlier in self.commits[:-1])
            stream.committed(commit, range(first, first + len(commit.records)), 0.0)


def test_the_first_pins_are_parked_and_no_more_than_a_commit_may_write() -> None:
    """The rest waits for the next commit, which comes soon."""
    sessions = [open_session(f"s{pin}", pin, 15_000) for pin in (3, 5, 7, 9)]

    assert keys(choose(sessions, 0, rewrites=False)) == ["s3", "s5"]


def test_one_session_is_always_parked_however_large() -> None:
    """Otherwise the safe offset could never pass it."""
    sessions = [open_session("large", 1, MAX_PARKED + 1), open_session("small", 2, 1)]

    assert keys(choose(sessions, 0, rewrites=False)) == ["large"]


def test_parking_gains_on_reading() -> None:
    """After a large batch, three times its size may be parked."""
    sessions = [open_session(f"s{pin:02}", pin, 10_000) for pin in range(20)]

    assert len(choose(sessions, 30_000, rewrites=False)) == GAIN * 30_000 // 10_000


def test_very_many_small_sessions_are_parked_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs something besides its bytes."""
    monkeypatch.setattr(parking, "SESSION_BYTES", MAX_PARKED // 4)
    sessions = [open_session(f"s{pin}", pin, 1) for pin in range(9)]

    assert len(choose(sessions, 0, rewrites=False)) == len(choose(sessions, 0, rewrites=True)) == 3


def test_only_what_will_be_written_counts() -> None:
    """Fragments that were parked before are written again only in a whole set; ids are always written."""
    sessions = [open_session(f"s{pin}", pin, 30_000, 100, parked=1, ids=100) for pin in range(3)]

    assert len(choose(sessions, 0, rewrites=False)) == 3
    assert len(choose(sessions, 0, rewrites=True)) == 1


def test_a_commit_is_due_after_a_quarter_of_what_may_be_replayed() -> None:
    """Whatever the time since the last commit, so that a crash never costs more than the bound."""
    fast = FastLog()
    fast.stream.limits = StreamLimits(max_replay_fragments=12)
    records = [Rec(offset, 1_000, b"k", b'{"key":"k"}') for offset in range(4)]

    assert fast.stream.turn(records[:3], now_s=0.0, wall_ms=0, commit_s=60.0).effects == ()
    (commit,) = fast.stream.turn(records[3:], now_s=0.0, wall_ms=0, commit_s=60.0).effects
    assert isinstance(commit, Commit)


def test_how_much_was_read_is_known_at_the_last_point_at_or_below_an_offset() -> None:
    """Between two batches the lower one counts, so a replay is estimated too long rather than too short."""
    marks = ReadMarks([(10, 100), (20, 250), (30, 300)])

    assert [marks.bytes_at(offset) for offset in (5, 10, 19, 20, 99)] == [100, 100, 100, 250, 300]
    assert [marks.first_after(read) for read in (0, 100, 101, 250, 301)] == [10, 10, 20, 20, 0]
    assert marks.last_batch == 50


@pytest.mark.parametrize("sessions", [1, 100, 1_000])
@pytest.mark.parametrize("seed", range(2))
def test_a_replay_stays_below_its_bound_however_fast_data_comes(sessions: int, seed: int) -> None:
    """Commits hurry while a replay would be long, and each parks no more than its share (and writes no more
    of a whole set than its own).
    """
    rng = random.Random(seed)
    log = FastLog()

    log.read(lambda: (f"k{rng.randrange(sessions)}", rng.choice([10, 300, 1_500])), 6_000)

    share_of_a_whole_set = 4 * CHUNK + SETTINGS.max_session_bytes
    assert MAX_REPLAY / 2 < max(log.replays) < MAX_REPLAY
    assert max(map(parked_by, log.commits)) <= GAIN * (BATCH + LARGEST) + share_of_a_whole_set


def test_sessions_that_pin_much_do_not_let_small_fragments_pile_up() -> None:
    """The bound on fragments holds even when large sessions must be parked while small fragments arrive."""
    log = FastLog()
    numbers = iter(range(10**9))

    log.read(lambda: (f"large{next(numbers) % 450}", 1_000), 450)
    log.read(lambda: (f"small{next(numbers) % 50}", 1), 2 * MAX_REPLAY_FRAGMENTS)

    assert MAX_REPLAY_FRAGMENTS / 2 < max(log.replayed_fragments) < MAX_REPLAY_FRAGMENTS


def test_what_is_parked_over_several_commits_is_parked_whole() -> None:
    """The checkpoint holds every fragment that a replay would not read."""
    numbers = iter(range(10**9))
    log = FastLog()

    log.read(lambda: (f"k{next(numbers) % 500}", 500), 4_000)

    parking_commits = [commit for commit in log.commits if parked_by(commit)]
    parked = sum(session.parked for session in log.stream.assembler.open.values())
    assert len(parking_commits) > 3
    assert 500 < log.stream.head.safe_offset <= parked


def test_a_replay_that_retention_cuts_leaves_the_sessions_in_order() -> None:
    """Silence looks at the oldest ones first; the last fragment of a parked one may never be read again."""
    parked = OpenSession("a", 0, 0, 0, 0, 0)
    parked.last_offset = 5
    assembler = Assembler(GroupSettings(), position=3, w=0, a=0)
    assembler.restore(
        covered=CoveredKeys(0),
        parked=OpenTable([parked]),
        parked_from=deque([(0, "a")]),
        state_bytes=0,
        position=6,
    )

    assembler.feed([fragment(3, "z"), fragment(4, "b"), fragment(7, "c")])

    assert [session.last_offset for session in assembler.open.values()] == [3, 4, 5, 7]


def test_a_replay_counts_what_it_reads_and_skips_what_was_set_aside() -> None:
    """A fragment under another record's key, a marker, and poison stand between two fragments."""
    assembler = Assembler(GroupSettings(), position=0, w=0, a=0)
    assembler.restore(
        covered=CoveredKeys(0), parked=OpenTable(), parked_from=deque(), state_bytes=0, position=5
    )
    first, last = fragment(0, "k"), fragment(4, "k")

    assembler.feed(
        [first, Rec(1, 1, b"other", first.value), Rec(2, 1, None, b"{}"), Rec(3, 1, b"k", b"poison"), last]
    )

    assert [session.last_offset for session in assembler.open.values()] == [4]
    assert assembler.bytes_read == len(first.value) + len(last.value)


def test_what_is_set_aside_and_every_marker_are_counted() -> None:
    """The last unreadable record is remembered with its offset and the reason."""
    assembler = Assembler(GroupSettings(), position=0, w=0, a=0)

    assembler.feed([Rec(n, 1, None, b'{"time":5}') for n in range(2)])
    assembler.feed([Rec(2, 1, None, b"poison")])
    keyless = assembler.last_unreadable
    assembler.feed([Rec(3, 1, b"k", b"poison")])

    assert (assembler.markers, assembler.unreadable) == (2, 2)
    assert keyless is not None
    assert assembler.last_unreadable is not None
    assert (keyless[0], assembler.last_unreadable[0]) == (2, 3)
    assert all(isinstance(why, str) for _, why in (keyless, assembler.last_unreadable))


def test_a_replay_is_long_beyond_half_of_either_bound() -> None:
    """Counted from the safe offset, not from the beginning."""
    assembler = Assembler(GroupSettings(), position=0, w=0, a=0)
    assembler.feed([fragment(n, "k", 73) for n in range(20)])
    size = assembler.bytes_read // 20
    marks = ReadMarks((n, n * size) for n in range(21))

    def is_long(safe_offset: int, fragments: int, read: int) -> bool:
        limits = StreamLimits(max_replay_fragments=fragments, max_replay_bytes=read)
        return is_replay_long(safe_offset, assembler, marks, limits)

    assert [is_long(10, 20, 10**6), is_long(9, 20, 10**6)] == [False, True]
    assert [is_long(10, 10**6, 20 * size), is_long(9, 10**6, 20 * size)] == [False, True]


def test_marks_below_the_safe_offset_are_forgotten_but_for_one() -> None:
    """What a replay from there has to read is still known."""
    marks = ReadMarks([(0, 0), (10, 100), (20, 200)])

    marks.forget_below(10)
    assert marks.points() == [(10, 100), (20, 200)]
    marks.forget_below(25)
    assert marks.points() == [(20, 200)]
