"""The producer's settings: what every service has, the limits of a request, and bounds on waiting."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from services.producer.core.ingest import Limits
from services.producer.http.keys import parse_keys
from services.producer.http.origins import parse_origins
from shared.errors import InvalidInput
from shared.service.service_settings import ServiceSettings
from shared.service.settings import setting

DEFAULT_STREAMS = 24
MAX_FRAGMENT_BYTES = 900 * 1024
"""A fragment must fit into a session (`max_session_bytes` of a group, 900 KB)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ServiceSettings):
    """Read from `BATON_…` variables."""

    port: int = setting(8001, "port to listen at", low=1, high=65_535, outside="there are no other ports")
    producer: str = setting("", "the producer's id in ZooKeeper; empty: host name and port")
    streams: int | None = setting(
        None,
        f"number of streams; empty: as the stored table says, {DEFAULT_STREAMS} where there is none yet",
        low=1,
        high=4096,
        outside="there are 4,096 slots",
    )
    retention_ms: int = setting(
        7 * 86_400_000,
        "how long Kafka keeps fragments (when the topics are created here)",
        unit="ms",
        low=60_000,
        outside="shorter than the longest session loses fragments that an open session still needs",
    )
    max_fragment_bytes: int = setting(
        32 * 1024,
        "largest fragment",
        unit="bytes",
        low=64,
        high=MAX_FRAGMENT_BYTES,
        outside="a fragment must fit into a session",
    )
    max_request_bytes: int = setting(
        1024 * 1024,
        "largest request",
        unit="bytes",
        low=64,
        high=64 * 1024 * 1024,
        outside="a larger one holds up everybody else while it is parsed",
    )
    max_request_fragments: int = setting(
        2_500,
        "most fragments in a request",
        low=1,
        high=2_500,
        outside="a key remembers only 2,500 ids, so a repeated larger request could double fragments",
    )
    max_inflight_bytes: int = setting(
        64 * 1024 * 1024,
        "most bytes of requests that are being read or wait for Kafka; beyond it 429",
        unit="bytes",
        low=2 * 1024 * 1024,
        outside="memory grows by up to three times this when Kafka stalls",
    )
    max_batch_bytes: int = setting(
        512 * 1024,
        "largest batch to one stream",
        unit="bytes",
        low=16 * 1024,
        high=1024 * 1024,
        outside="smaller batches cost throughput, larger ones are refused by the topics",
    )
    compression: str = setting("none", "compression of batches", choices=("none", "snappy", "zstd"))
    ack_timeout_s: float = setting(
        10.0,
        "how long Kafka may take to acknowledge before the request is answered with 503",
        unit="s",
        low=0.2,
        high=120,
        outside="shorter than a broker's restart refuses fragments that could have waited",
    )
    header_timeout_s: float = setting(
        10.0,
        "how long a client may take to send a request's headers",
        unit="s",
        low=0.1,
        high=600,
        outside="shorter cuts off slow clients, longer lets them hold connections",
    )
    read_timeout_s: float = setting(
        30.0,
        "how long a client may take to send a request's body",
        unit="s",
        low=0.1,
        high=600,
        outside="shorter cuts off slow clients, longer lets them hold memory",
    )
    workers: int = setting(
        1,
        "processes that share the port, each on one core; bounds on memory count for each of them",
        low=1,
        high=64,
        outside="more than there are cores only wait for each other",
    )
    write_keys: str = setting(
        "",
        "keys of which a request must give one to write, `key,…`; empty, with no file either: none is needed",
        secret=True,
    )
    write_keys_file: str = setting(
        "", "file with more write keys, one a line (`#` comments), that is read again when it changes"
    )
    allowed_origins: str = setting(
        "*",
        "pages that may write from browsers, `scheme://host[:port],…`; `*`: all; empty: none; requests that "
        "name no origin are not asked",
    )

    def check(self) -> list[str]:
        """Faults of relations between settings."""
        # not super(): slots=True makes a second class, which zero-argument super() does not know
        faults = ServiceSettings.check(self)
        if self.max_fragment_bytes > self.max_request_bytes:
            faults.append(
                f"BATON_MAX_FRAGMENT_BYTES={self.max_fragment_bytes} is more than "
                f"BATON_MAX_REQUEST_BYTES={self.max_request_bytes}: such a fragment could never arrive"
            )
        if 2 * self.max_request_bytes > self.max_inflight_bytes:
            faults.append(
                f"BATON_MAX_REQUEST_BYTES={self.max_request_bytes} is more than half of "
                f"BATON_MAX_INFLIGHT_BYTES={self.max_inflight_bytes}, which is all that may be arriving: "
                "such a request might never be read"
            )
        if "/" in self.producer or self.producer in (".", ".."):
            faults.append(f"BATON_PRODUCER={self.producer!r}: no `/`, and neither `.` nor `..`")
        try:
            parse_origins(self.allowed_origins)
        except ValueError as error:
            faults.append(f"BATON_ALLOWED_ORIGINS: {error}")
        try:
            parse_keys(self.write_keys.split(","))
        except InvalidInput as error:
            faults.append(f"BATON_WRITE_KEYS: {error.detail}")
        return faults

    @property
    def keys_file(self) -> Path | None:
        """The file of write keys, if there is to be one."""
        return Path(self.write_keys_file) if self.write_keys_file else None

    @property
    def limits(self) -> Limits:
        """What one request may hold."""
        return Limits(
            max_fragment_bytes=self.max_fragment_bytes,
            max_request_bytes=self.max_request_bytes,
            max_request_fragments=self.max_request_fragments,
        )

    @property
    def id(self) -> str:
        """The producer's id in ZooKeeper."""
        return self.producer or f"{socket.gethostname()}-{self.port}"
