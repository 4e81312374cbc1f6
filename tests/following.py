"""Random chains of groups over one random log: each follows the one before, and starts where it may."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from services.consumer.core.commits.checkpoint import Checkpoint, new_stream, start_following
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.sessions.seam import Seam
from services.consumer.core.slices import at_once
from shared.model.group import GroupSettings
from shared.model.sessions import Session, parse_session
from shared.model.start import Cut, GroupStart, cuts_of, latest_start, reaching_cuts
from tests.logs import SETTINGS, Owner, Store, close_silence, delivered_rows, random_log
from tests.reference import Rec, fold_eagerly


@dataclass
class Group:
    """One group of a chain: what Kafka keeps of it, its present owner, and whom it follows.

    `chain`: its start, that of the group it follows, and so on; empty for the first group.
    """

    store: Store
    owner: Owner
    chain: list[GroupStart] = field(default_factory=list)

    @property
    def start(self) -> int:
        """The offset at which the group starts."""
        return (self.chain[0].offset(0) if self.chain else None) or 0

    def read_to(self, log: list[Rec], rng: random.Random, *, crashes: bool = True) -> None:
        """Reads on to the end of this part of the log, whatever happens to its owners."""
        self.owner.log = log
        while not self.owner.run():
            self.owner.succeed()
        if not crashes:
            close_silence(self.owner.stream, self.store, rng)


def numbered_log(rng: random.Random, length: int = 60) -> list[Rec]:
    """A random log in which the data of every fragment is its offset, and whose last record ends all."""
    log = []
    for record in random_log(rng, length):
        value = record.value
        if record.key is not None and value != b"poison":
            value = msgspec.json.encode(msgspec.json.decode(value) | {"data": record.offset})
        log.append(Rec(record.offset, record.timestamp, record.key, value))
    return [*log, Rec(length, log[-1].timestamp, None, b'{"time":9999999}')]


def random_settings(rng: random.Random) -> GroupSettings:
    """Other settings than those of the group before, so that sessions begin and end elsewhere."""
    return msgspec.structs.replace(
        SETTINGS,
        gap_ms=rng.choice([20, 100, 300]),
        idle_ms=rng.choice([60, 150, 400]),
        lateness_ms=rng.choice([0, 30, 90]),
        max_session_fragments=rng.choice([2, 5, 50]),
    )


def current_of(cut: Cut, groups: dict[str, Group]) -> Iterable[Session]:
    """The sessions of a cut's group that are current."""
    sessions = map(parse_session, groups[cut.group].store.sessions)
    return (session for session in sessions if cut.holds(session.first_offset, session.log))


def begin_following(chain: list[GroupStart], groups: dict[str, Group]) -> Checkpoint:
    """Where the first owner of a following group begins: with what others' delivered sessions cover."""
    start = chain[0].offset(0)
    if start is None:
        return new_stream()
    seam = Seam(0, start)
    for cut in reaching_cuts(chain, 0):
        seam.add(cut, groups[cut.group].store.sessions)
    return start_following(start, 0, at_once(seam.covering()))


def random_chain(log: list[Rec], rng: random.Random) -> dict[str, Group]:
    """Three groups, each made while the one before was somewhere in the log; all have read all of it."""
    groups: dict[str, Group] = {}
    limits = StreamLimits(max_replay_fragments=rng.choice([4, 12, 40, 1000]))
    chain: list[GroupStart] = []
    for name in ("a", "b", "c"):
        if groups:
            before = next(reversed(groups))
            followed = groups[before]
            latest = latest_start(followed.store.head, followed.start)
            start = min(latest, rng.choice([0, latest, rng.randrange(len(log)), rng.randrange(latest + 1)]))
            chain = [GroupStart(follows=before, offsets={0: start}), *chain]
            # the followed group goes on in the meantime
            followed.read_to(log[: rng.randrange(followed.owner.stream.position, len(log) + 1)], rng)

        def begin(chain: list[GroupStart] = chain) -> Checkpoint:
            return begin_following(chain, groups) if chain else new_stream()

        store = Store(name, random_settings(rng), begin)
        owner = Owner([], rng, store, limits)
        group = Group(store, owner, chain)
        group.read_to(log[: rng.randrange(group.start, len(log) + 1)], rng)
        groups[name] = group
    for group in groups.values():
        group.read_to(log, rng, crashes=False)
    return groups


def chain_difference(seed: int) -> str:
    """What is wrong in a random chain of groups, or the empty string.

    Every fragment must stand in exactly one current session of the last group; only one whose id another
    fragment of its key has may stand in none. And each group's own sessions must be those of an eager fold.
    """
    rng = random.Random(seed)
    log = numbered_log(rng)
    groups = random_chain(log, rng)
    wrong = _not_in_one_session(log, groups) or _not_as_folded(log, groups)
    return f"seed {seed}, starts {[group.start for group in groups.values()]}: {wrong}" if wrong else ""


def _not_in_one_session(log: list[Rec], groups: dict[str, Group]) -> str:
    last = groups["c"]
    current = [parse_session(raw) for raw in last.store.sessions]
    for cut in cuts_of(last.chain, 0):
        current += current_of(cut, groups)
    fragments = [msgspec.json.decode(raw) for session in current for raw in session.data]
    found = sorted(fragment["data"] for fragment in fragments)
    twice = [offset for offset, after in pairwise(found) if offset == after]
    ids = {(fragment["key"], fragment["id"]) for fragment in fragments if "id" in fragment}
    missing = []
    for record in log:
        if record.key is None or record.value == b"poison" or record.offset in found:
            continue
        fields = msgspec.json.decode(record.value)
        if (fields["key"], fields.get("id")) not in ids:
            missing.append(record.offset)
    return f"twice {twice}, missing {missing}" if twice or missing else ""


def _not_as_folded(log: list[Rec], groups: dict[str, Group]) -> str:
    for name, group in groups.items():
        covered = {key: entry.offset for key, entry in group.store.begin().covered.items()}
        closed, _ = fold_eagerly(log[group.start :], group.store.settings, covered)
        expected, found = sorted(s.row() for s in closed), sorted(delivered_rows(group.store))
        if expected != found:
            return f"group {name} delivered {found}, expected {expected}"
    return ""
