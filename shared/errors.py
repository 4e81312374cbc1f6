"""The tree of all errors, grouped by what the caller should do: reject, re-plan, retry, crash.

    BatonError
    ├── InvalidInput      reject   the input is wrong; sending it again cannot help
    │   └── NotFound               it names something that does not exist
    ├── Conflict          re-plan  the world has changed; look again and decide anew
    ├── Unavailable       retry    a dependency did not answer in time
    └── InvariantBroken   crash    a bug: log the state, die, replay

Adapters translate library errors into these; `shared/service/http.py` maps them to status codes. Losing a
race is a `False`, not an error.
"""

from __future__ import annotations

from collections.abc import Mapping


class BatonError(Exception):
    """Something went wrong in Baton."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail or type(self).__doc__ or type(self).__name__)

    @property
    def detail(self) -> str:
        """One sentence for a person."""
        return str(self)


class InvalidInput(BatonError):
    """The input is invalid."""


class NotFound(InvalidInput):
    """The named thing does not exist."""


class Unauthorized(InvalidInput):
    """The request is not signed by a registered member."""


class BundleRejected(InvalidInput):
    """The bundle is malformed or too large."""


class SettingsInvalid(InvalidInput):
    """The settings are invalid; `faults` has a sentence for each fault."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))


class Conflict(BatonError):
    """The world is not as the request assumes; look again.

    `members`: what programs need to know of it, like {"run": id} of the run that is in the way.
    """

    def __init__(self, detail: str = "", *, members: Mapping[str, str] | None = None) -> None:
        self.members = dict(members or {})
        super().__init__(detail or (type(self).__doc__ or "").partition("\n")[0])


class NotOwner(Conflict):
    """This member does not own the stream (any more)."""


class StaleEpoch(Conflict):
    """The stored head has a higher epoch, so ownership is lost."""


class HandoverRefused(Conflict):
    """The recipient does not accept the stream, or not in this way."""


class HandoverUnreadable(HandoverRefused):
    """The recipient cannot read the message, perhaps because its version is another: it would never do."""


class Unavailable(BatonError):
    """A dependency did not answer in time; try again later.

    `cause` is what a library says about it, which may name addresses. `detail` is for the log and ends with
    it; `reason` is for strangers and does not.
    """

    def __init__(self, reason: str = "", *, cause: str = "") -> None:
        self.reason = reason or (type(self).__doc__ or "").partition("\n")[0]
        super().__init__(f"{self.reason}: {cause}" if cause else self.reason)


class KafkaUnavailable(Unavailable):
    """Kafka is unreachable or does not acknowledge in time."""


class KafkaDenied(KafkaUnavailable):
    """Kafka does not let this client in; worth a retry, because secrets and certificates are replaced."""


class ZooKeeperUnavailable(Unavailable):
    """ZooKeeper is unreachable or does not answer in time."""


class ZooKeeperRefused(ZooKeeperUnavailable):
    """ZooKeeper has a znode that this process may not use: its user or password is wrong, for now."""


class PeerUnavailable(Unavailable):
    """Another member does not answer in time."""


class SparkUnavailable(Unavailable):
    """Spark cannot be started."""


class InvariantBroken(BatonError):
    """An invariant is violated: this is a bug."""
