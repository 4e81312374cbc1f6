"""What slows a member down, so that one change in the group does not set off the next.

Pure. A member remembers one *not before* for each stream and one for each member; `decide.py` reads them
beside the view. Two bounds, moves and openings under way, are settings. Everything that must wait waits here:

| not before of | set when | by | until then this member does not |
| --- | --- | --- | --- |
| a stream | it is first seen without a claim | `grace_ms` | claim it, unless the plan says so |
| a stream | it has come here from another member | `rest_ms` | hand it over |
| a member | it arrives | `steady_ms`, doubled per arrival in `flap_ms` | give it a running stream |
| a member | it leaves a stream unowned for a grace | `shun_ms` | give it one, or count on it |
| a member | it refuses a handover, or is silent | `refused_ms`, `silent_ms` | give it one |
| the member itself | its ZooKeeper session begins | `settle_ms` | claim what was another's |

A later not-before wins over an earlier one. A drain waits for none of them, an operator's pin not for a rest.
Which streams could not be handed over, `failed_moves.py` remembers.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.consumer.core.ownership.failed_moves import FailedMoves
from shared.model.balance import plan
from shared.model.cluster import View

MAX_DOUBLINGS = 8
"""A member that keeps coming and going waits for at most 256 times `steady_ms`: two minutes by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipSettings:
    """How long a member waits for what (see the table above), and its two bounds."""

    grace_ms: int = 5000
    settle_ms: int = 3000
    """Must be longer than a reconnection takes (shared/zookeeper/connection.py): after an outage of ZooKeeper
    the others are about to come back for their streams."""
    shun_ms: int = 60_000
    steady_ms: int = 500
    flap_ms: int = 300_000
    rest_ms: int = 10_000
    refused_ms: int = 2000
    """The recipient's share or its lease may soon be another."""
    silent_ms: int = 30_000
    moves_at_once: int = 8
    """Streams under way to other members: being copied, or waiting for their turn to stand still, which the
    recipient gives to one at a time. Enough that a recipient never waits for a copy."""
    move_bytes_at_once: int = 128 * 1024 * 1024
    """Bytes of fragments in the open sessions of all of them: their copies are held here and there."""
    openings_at_once: int = 32
    """Streams that are being opened. A member that starts alone leaves the rest to those that start a moment
    later."""


class Dampers:
    """The memory of member `me`; `observe` each view before deciding by it. All times are of one clock."""

    def __init__(self, me: str, settings: OwnershipSettings) -> None:
        self.me = me
        self.settings = settings
        self.now_ms = 0
        self.failed_moves = FailedMoves()
        self._streams: dict[int, int] = {}
        self._members: dict[str, int] = {}
        self._last_owners: dict[int, str] = {}
        """Streams that the last view showed without a claim, and their last owners."""
        self._active: frozenset[str] = frozenset()
        self._arrivals: dict[str, list[int]] = {}
        """By address: a restarted process may come back under another id."""

    def __repr__(self) -> str:
        return f"<Dampers of {self.me} at {self.now_ms}: streams {self._streams}, members {self._members}>"

    def observe(self, view: View, now_ms: int, session_age_ms: int) -> None:
        """Notes what has changed since the last view. `session_age_ms`: for how long this member has been in
        the group in its present ZooKeeper session.
        """
        self.now_ms = now_ms
        self._members = {name: at for name, at in self._members.items() if at > now_ms}
        self.failed_moves.forget(view.streams_of(self.me), now_ms)
        self._note_claims(view)
        self._note_arrivals(view)
        self._note_missed_turns(view)
        # last, and no maximum: a new ZooKeeper session starts this wait anew
        self._members[self.me] = now_ms - session_age_ms + self.settings.settle_ms

    def note_failed_handover(self, stream: int, target: str, now_ms: int, *, silent: bool) -> None:
        """The target refused a handover of the stream, or was silent: it gets no other for a while."""
        self.failed_moves.note(stream, now_ms)
        self._hold_back(target, now_ms + (self.settings.silent_ms if silent else self.settings.refused_ms))

    def rests(self, stream: int) -> bool:
        """Whether a running stream has come so lately that it stays."""
        return self._streams.get(stream, self.now_ms) > self.now_ms

    def holds_back(self, member: str) -> bool:
        """Whether to give a member nothing yet; of `me`: whether not to claim yet what was another's."""
        return self._members.get(member, self.now_ms) > self.now_ms

    def unowned_ms(self, stream: int) -> int:
        """For how long a stream that the last view showed without a claim has been so."""
        # the stream's not before is when the grace ends, so it has been unowned since `grace_ms` before
        return self.now_ms + self.settings.grace_ms - self._streams[stream]

    def _hold_back(self, member: str, until_ms: int) -> None:
        self._members[member] = max(until_ms, self._members.get(member, 0))

    def _note_claims(self, view: View) -> None:
        last_owners = {n: view.node(n).owner for n in range(view.count) if n not in view.claims}
        for stream in last_owners.keys() - self._last_owners.keys():
            self._streams[stream] = self.now_ms + self.settings.grace_ms
        for stream in self._last_owners.keys() - last_owners.keys():
            claim = view.claims.get(stream)
            came = self._last_owners[stream] not in ("", self.me)
            if came and claim is not None and claim.member == self.me:
                self._streams[stream] = self.now_ms + self.settings.rest_ms
            else:
                del self._streams[stream]
        self._last_owners = last_owners

    def _note_arrivals(self, view: View) -> None:
        since_ms = self.now_ms - self.settings.flap_ms
        self._arrivals = {
            address: recent
            for address, times in self._arrivals.items()
            if (recent := [at for at in times if at > since_ms])
        }
        active = {name for name, node in view.members.items() if node.state == "active"}
        for name in sorted(active - self._active):
            times = self._arrivals.setdefault(view.members[name].address, [])
            wait_ms = self.settings.steady_ms * 2 ** min(len(times), MAX_DOUBLINGS)
            self._hold_back(name, self.now_ms + wait_ms)
            times.append(self.now_ms)
        self._active = frozenset(active)

    def _note_missed_turns(self, view: View) -> None:
        overdue = [n for n in self._last_owners if self.unowned_ms(n) >= self.settings.grace_ms]
        if overdue:
            owner = plan(view).owner
            for name in {owner[stream] for stream in overdue if stream in owner}:
                self._hold_back(name, self.now_ms + self.settings.shun_ms)
