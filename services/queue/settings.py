"""The queue service's settings: those of every service, limits of requests, and timeouts.

What a single queue does is set per queue, over HTTP. Read once by `__main__.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.queue.core.items import MAX_ITEM_BYTES
from shared.service.service_settings import PORTS, ServiceSettings
from shared.service.settings import at_least, between, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueServiceSettings(ServiceSettings):
    """Read from `BATON_…` variables."""

    port: int = setting(8002, "port to listen on", PORTS)
    max_request_bytes: int = setting(
        2 * 1024 * 1024,
        "largest request with items, encoded and decoded",
        between(
            2 * MAX_ITEM_BYTES,
            64 * 1024 * 1024,
            "an item has up to 1 MB; a larger request holds up everybody else while it is parsed",
        ),
    )
    max_inflight_bytes: int = setting(
        64 * 1024 * 1024,
        "most bytes of requests that are being read or wait for Kafka; beyond that 429",
        at_least(8 * 1024 * 1024, "memory grows by up to three times this when Kafka stalls"),
    )
    ack_timeout_s: float = setting(
        10.0,
        "how long Kafka may take to acknowledge before a request gets 503",
        between(0.2, 120, "shorter than a broker's restart rejects requests that could have waited"),
    )
    read_timeout_s: float = setting(
        30.0,
        "how long a client may take to send a request's body",
        between(0.1, 600, "shorter cuts off slow clients, longer allows them to occupy memory"),
    )

    def check(self) -> list[str]:
        """Faults of relations between settings."""
        # not super(): slots=True creates a second class, which zero-argument super() does not know
        faults = ServiceSettings.check(self)
        if 2 * self.max_request_bytes > self.max_inflight_bytes:
            faults.append(
                f"BATON_MAX_REQUEST_BYTES={self.max_request_bytes} is more than half of "
                f"BATON_MAX_INFLIGHT_BYTES={self.max_inflight_bytes}, the bound on bodies that are arriving: "
                "such a request might never be read"
            )
        return faults
