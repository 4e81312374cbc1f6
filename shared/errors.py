"""The one tree of errors, grouped by what the caller should do: reject, re-plan, retry, crash.

    BatonError
    ├── InvalidInput      reject   the input is wrong; sending it again cannot help
    │   └── NotFound               it names something that does not exist
    ├── Conflict          re-plan  the world changed; look again, then decide anew
    ├── Unavailable       retry    a dependency did not answer in time
    └── InvariantBroken   crash    a bug: log the state, die, replay

Adapters translate library errors into these once; status codes live in `shared/service/http.py`.
Losing a race is a `False`, not an error.
"""

from __future__ import annotations


class BatonError(Exception):
    """Something went wrong in Baton."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail or type(self).__doc__ or type(self).__name__)

    @property
    def detail(self) -> str:
        """One sentence for a person."""
        return str(self)


class InvalidInput(BatonError):
    """The input is not acceptable."""


class NotFound(InvalidInput):
    """There is no such thing."""


class Unauthorized(InvalidInput):
    """The request is not signed by, or not from, a registered member."""


class BundleRejected(InvalidInput):
    """The bundle cannot be read, or is too large."""


class SettingsInvalid(InvalidInput):
    """The settings have faults; `faults` names each of them in a sentence."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))


class Conflict(BatonError):
    """The world is not as the request supposed; look again."""


class NotOwner(Conflict):
    """The stream is not (or no longer) owned by this member."""


class StaleEpoch(Conflict):
    """The stored head has a higher epoch: ownership is lost."""


class HandoverRefused(Conflict):
    """The recipient does not take the stream, or not so."""


class Unavailable(BatonError):
    """A dependency did not answer in time; try again later."""


class KafkaUnavailable(Unavailable):
    """Kafka cannot be reached or does not acknowledge in time."""


class ZooKeeperUnavailable(Unavailable):
    """ZooKeeper cannot be reached or does not answer in time."""


class PeerUnavailable(Unavailable):
    """Another member does not answer in time."""


class SparkUnavailable(Unavailable):
    """Spark cannot be started."""


class InvariantBroken(BatonError):
    """A rule that must always hold does not: this is a bug."""
