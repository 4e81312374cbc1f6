"""What a member remembers of earlier views, and the settings by which it judges them.

Pure. How long a stream has been unowned, who let a turn pass, who has come and gone: `decide.py` decides
by this beside the present view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.model.balance import plan
from shared.model.cluster import View


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipSettings:
    """`settle_ms` must be more than a reconnection takes (see shared/zookeeper/connection.py)."""

    grace_ms: int = 5000
    """An unowned stream is left this long to the member that the plan names."""
    settle_ms: int = 3000
    """So young a ZooKeeper session claims only what was, is meant for, or nobody's: ZooKeeper may have been
    gone for everybody, and the others be about to come back for theirs."""
    shun_ms: int = 60_000
    """A member that let its turn pass is given no running stream for so long."""
    steady_ms: int = 500
    """A member is given running streams when it has been there for so long, twice as long for each time
    that it came again within `flap_ms`: who comes and goes does not shake the others."""
    flap_ms: int = 300_000
    moves_at_once: int = 2
    """Streams under way to other members at a time. More are no sooner there (the donor's core is what is
    short), but each stands still for longer: 24 streams under load took 2.8 s with 2 and with 4."""
    openings_at_once: int = 32
    """Streams that are being opened at a time; so a member that starts alone leaves some to those who come
    a moment later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What a member remembers of earlier views; `now_ms` and all times are of one clock.

    `unowned_since`: stream → since when it has been seen unowned without a break; `passed`: member →
    when it last let a turn pass, that is, left a stream that the plan named it for unowned for a grace;
    `active_since`: member → since when it has been active; `arrivals`: address → when it became so lately.
    """

    now_ms: int = 0
    unowned_since: Mapping[int, int] = field(default_factory=dict)
    passed: Mapping[str, int] = field(default_factory=dict)
    active_since: Mapping[str, int] = field(default_factory=dict)
    arrivals: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def is_steady(self, member: str, address: str, steady_ms: int) -> bool:
        """Whether the member has been there for long enough to be given running streams."""
        since_ms = self.active_since.get(member)
        times = max(1, len(self.arrivals.get(address, ())))
        return since_ms is not None and self.now_ms - since_ms >= steady_ms * 2 ** min(times - 1, 8)


def observe(previous: Observations, view: View, now_ms: int, settings: OwnershipSettings) -> Observations:
    """What is remembered after having seen this view now."""
    unowned_since = {
        n: previous.unowned_since.get(n, now_ms) for n in range(view.count) if n not in view.claims
    }
    passed = {name: at_ms for name, at_ms in previous.passed.items() if now_ms - at_ms < settings.shun_ms}
    if any(now_ms - since_ms >= settings.grace_ms for since_ms in unowned_since.values()):
        wanted = plan(view)
        for stream, since_ms in unowned_since.items():
            if now_ms - since_ms >= settings.grace_ms and stream in wanted.owner:
                passed[wanted.owner[stream]] = now_ms
    active = {name: node.address for name, node in view.members.items() if node.state == "active"}
    active_since = {name: previous.active_since.get(name, now_ms) for name in active}
    arrivals = {
        address: recent
        for address, times in previous.arrivals.items()
        if (recent := tuple(at_ms for at_ms in times if now_ms - at_ms < settings.flap_ms))
    }
    for name, address in active.items():
        if name not in previous.active_since:
            arrivals[address] = (*arrivals.get(address, ()), now_ms)
    return Observations(
        now_ms=now_ms,
        unowned_since=unowned_since,
        passed=passed,
        active_since=active_since,
        arrivals=arrivals,
    )
