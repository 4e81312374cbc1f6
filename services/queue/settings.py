"""The queue service's settings: those of every service, limits of requests, and timeouts.

What a single queue does is set per queue, over HTTP. Read once by `__main__.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.queue.core.items import MAX_ITEM_BYTES
from services.queue.http.exchange import MAX_REQUEST_BYTES
from services.queue.kafka import cache
from services.queue.worker import answers
from shared.service.service_settings import PORTS, ServiceSettings
from shared.service.settings import at_least, between, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueServiceSettings(ServiceSettings):
    """Read from `BATON_…` variables."""

    port: int = setting(8002, "port to listen on", PORTS)
    queue_keys_file: str = setting(
        "",
        "file of keys for queues, one per line, `KEY SCOPES [QUEUES]` with `enqueue`, `work` and `manage` as "
        "scopes, `+` between them, and perhaps the names of queues, `,` between them (`#` comments); reread "
        "when it changes; empty: no key is required",
    )
    max_inflight_bytes: int = setting(
        64 * 1024 * 1024,
        "most bytes of requests that are being read or wait for Kafka; beyond that 429",
        at_least(2 * MAX_REQUEST_BYTES, "a larger request might never be read"),
    )
    max_answer_bytes: int = setting(
        answers.MAX_BYTES,
        "most bytes of items in answers that are being sent, each counted twice; beyond that answers have "
        "fewer items, and then 429",
        at_least(2 * answers.COPIES * MAX_ITEM_BYTES, "large items would be answered one at a time"),
    )
    max_cache_bytes: int = setting(
        cache.MAX_BYTES,
        "most bytes of items that are read ahead or kept, of all queues together; one keeps at most 24 MB",
        at_least(8 * MAX_ITEM_BYTES, "items would be read from Kafka again and again"),
    )
    ack_timeout_s: float = setting(
        10.0,
        "how long Kafka may take to acknowledge before a request gets 503",
        between(0.2, 120, "shorter than a broker's restart rejects requests that could have waited"),
    )
