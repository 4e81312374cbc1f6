"""Random chains of groups over one random log: each follows the one before, and starts where it may.

In some chains the log is made anew between two groups. Then either the next group starts with null, or the
group that lost its log is started over and the next one follows it on the new log.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

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

LENGTH = 60
ANEW = 1_000
"""Added to the data of fragments of the log that was made anew."""
Groups = dict[str, "Group"]


@dataclass
class Group:
    """One group of a chain: what Kafka keeps of it, its present owner, its log, and whom it follows.

    `chain`: its start, that of the group it follows, and so on; empty for the first group. `number`: the
    log's, above 0 after it was started over; `before`: how many sessions it had delivered by then.
    """

    store: Store
    owner: Owner
    log: list[Rec]
    chain: list[GroupStart] = field(default_factory=list)
    number: int = 0
    before: int = 0

    @property
    def start(self) -> int:
        """The offset of its log at which the group starts."""
        return 0 if self.number or not self.chain else self.chain[0].offset(0) or 0

    def read_to(self, end: int, rng: random.Random, *, crashes: bool = True) -> None:
        """Reads on to this offset of its log, whatever happens to its owners."""
        self.owner.log = self.log[:end]
        while not self.owner.run():
            self.owner.succeed()
        if not crashes:
            close_silence(self.owner.stream, self.store, rng)

    def start_over(self, log: list[Rec], rng: random.Random) -> None:
        """An operator deletes the head and the checkpoint records; the group reads another log from its
        beginning."""
        store, number = self.store, self.store.next_offset + 1
        store.records, store.head, store.next_offset = {}, None, number
        store.begin = lambda: new_stream(number)
        self.log, self.number, self.before = log, number, len(store.sessions)
        self.owner = Owner([], rng, store, self.owner.limits)


def numbered_log(rng: random.Random, first: int = 0) -> list[Rec]:
    """A random log in which the data of every fragment is its offset plus `first`, and whose last record ends
    all."""
    log = []
    for record in random_log(rng, LENGTH):
        value = record.value
        if record.key is not None and value != b"poison":
            value = msgspec.json.encode(msgspec.json.decode(value) | {"data": record.offset + first})
        log.append(Rec(record.offset, record.timestamp, record.key, value))
    return [*log, Rec(LENGTH, log[-1].timestamp, None, b'{"time":9999999}')]


def random_settings(rng: random.Random) -> GroupSettings:
    """Other settings than those of the group before, so that sessions begin and end elsewhere."""
    return msgspec.structs.replace(
        SETTINGS,
        gap_ms=rng.choice([20, 100, 300]),
        idle_ms=rng.choice([60, 150, 400]),
        lateness_ms=rng.choice([0, 30, 90]),
        max_session_fragments=rng.choice([2, 5, 50]),
    )


def current_of(cut: Cut, groups: Groups) -> Iterable[Session]:
    """The sessions of a cut's group that are current."""
    sessions = map(parse_session, groups[cut.group].store.sessions)
    return (session for session in sessions if cut.holds(session.first_offset, session.log))


def begin_following(chain: list[GroupStart], groups: Groups) -> Checkpoint:
    """Where the first owner of a following group begins: with what others' delivered sessions cover."""
    start = chain[0].offset(0)
    if start is None:
        return new_stream()
    seam = Seam(0, start)
    for cut in reaching_cuts(chain, 0):
        seam.add(cut, groups[cut.group].store.sessions)
    return start_following(start, 0, at_once(seam.covering()))


def random_start(follows: str, followed: Group, rng: random.Random) -> GroupStart:
    """A start that the followed group's head allows."""
    latest = latest_start(followed.store.head, followed.start)
    start = min(latest, rng.choice([0, latest, rng.randrange(LENGTH + 1), rng.randrange(latest + 1)]))
    logs = {0: followed.number} if followed.number else {}
    return GroupStart(follows=follows, offsets={0: start}, logs=logs)


@dataclass(frozen=True, kw_only=True)
class Story:
    """What happens to the log: it is lost when so many groups have begun, and what is done about that.

    With `lost` 0 or above the number of groups, nothing happens.
    """

    lost: int
    mend: Literal["null", "start over"]


def random_chain(story: Story, rng: random.Random) -> Groups:
    """Three groups, each made while the one before was somewhere in its log; who still has a log has read all
    of it."""
    log = numbered_log(rng)
    groups: Groups = {}
    limits = StreamLimits(max_replay_fragments=rng.choice([4, 12, 40, 1000]))
    chain: list[GroupStart] = []
    for count, name in enumerate(("a", "b", "c")):
        if groups:
            before = next(reversed(groups))
            followed = groups[before]
            is_lost = count == story.lost
            if is_lost:
                log = numbered_log(rng, ANEW)
            if is_lost and story.mend == "null":
                logs = {0: followed.number} if followed.number else {}
                start = GroupStart(follows=before, offsets={0: None}, logs=logs)
            else:
                if is_lost:
                    followed.start_over(log, rng)
                    followed.read_to(rng.randrange(len(log) + 1), rng)
                start = random_start(before, followed, rng)
                # the followed group goes on in the meantime
                followed.read_to(rng.randrange(followed.owner.stream.position, len(log) + 1), rng)
            chain = [start, *chain]

        def begin(chain: list[GroupStart] = chain) -> Checkpoint:
            return begin_following(chain, groups) if chain else new_stream()

        store = Store(name, random_settings(rng), begin)
        group = Group(store, Owner([], rng, store, limits), log, chain)
        group.read_to(rng.randrange(group.start, len(log) + 1), rng)
        groups[name] = group
    for group in groups.values():
        if group.log is log:
            group.read_to(len(log), rng, crashes=False)
    return groups


def chain_difference(seed: int) -> str:
    """What is wrong in a random chain of groups, or the empty string.

    Every fragment must stand in exactly one current session of the last group; only one whose id another
    fragment of its key has may stand in none. Of a log that was lost, what was current in the group that
    lost it must stay. And each group's own sessions must be those of an eager fold.
    """
    rng = random.Random(seed)
    story = Story(lost=rng.choice([0, 0, 1, 2]), mend=rng.choice(["null", "start over"]))
    groups = random_chain(story, rng)
    wrong = _not_in_one_session(groups) or _not_kept(story, groups) or _not_as_folded(groups)
    return f"seed {seed}, {story}, {[one.chain[:1] for one in groups.values()]}: {wrong}" if wrong else ""


def current_in(group: Group, groups: Groups) -> list[Session]:
    """The sessions that are current in a group."""
    current = [parse_session(raw) for raw in group.store.sessions]
    for cut in cuts_of(group.chain, 0):
        current += current_of(cut, groups)
    return current


def fragments_of(sessions: Iterable[Session]) -> list[Mapping[str, Any]]:
    """The fragments of the sessions."""
    return [msgspec.json.decode(raw) for session in sessions for raw in session.data]


def _not_in_one_session(groups: Groups) -> str:
    last = groups["c"]
    fragments = fragments_of(current_in(last, groups))
    found = sorted(fragment["data"] for fragment in fragments)
    twice = [number for number, after in pairwise(found) if number == after]
    readable = [
        msgspec.json.decode(one.value) for one in last.log if one.key is not None and one.value != b"poison"
    ]
    # an id of the log before counts for nothing on this one
    there = {fields["data"] for fields in readable}
    ids = {(one["key"], one["id"]) for one in fragments if "id" in one and one["data"] in there}
    missing = [
        fields["data"]
        for fields in readable
        if fields["data"] not in found and (fields["key"], fields.get("id")) not in ids
    ]
    return f"twice {twice}, missing {missing}" if twice or missing else ""


def _not_kept(story: Story, groups: Groups) -> str:
    if not story.lost:
        return ""
    loser = group = list(groups.values())[story.lost - 1]
    kept = fragments_of(map(parse_session, loser.store.sessions[: loser.before or None]))
    below = LENGTH + 1
    while group.chain:
        below = min(below, group.chain[0].offset(0) or 0)
        group = groups[group.chain[0].follows or ""]
        sessions = map(parse_session, group.store.sessions)
        kept += fragments_of(one for one in sessions if one.first_offset < below)
    expected = sorted(one["data"] for one in kept if one["data"] < ANEW)
    current = fragments_of(current_in(groups["c"], groups))
    found = sorted(one["data"] for one in current if one["data"] < ANEW)
    return "" if found == expected else f"of the lost log {found} instead of {expected}"


def _not_as_folded(groups: Groups) -> str:
    present = groups["c"].log
    for name, group in groups.items():
        if group.log is not present:
            continue  # it stopped somewhere in a log that is gone
        covered = {key: entry.offset for key, entry in group.store.begin().covered.items()}
        closed, _ = fold_eagerly(group.log[group.start :], group.store.settings, covered)
        expected = sorted(s.row() for s in closed)
        found = sorted(delivered_rows(group.store)[group.before :])
        if expected != found:
            return f"group {name} delivered {found}, expected {expected}"
    return ""
