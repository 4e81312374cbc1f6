"""The producer's settings: those of every service, the limits of a request, and timeouts.

Read once by `__main__.py`; `baton settings` and docs/operations.md list them.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from services.producer.core.ingest import Limits
from services.producer.http.access.keys import parse_keys
from services.producer.http.access.origins import parse_origins
from shared.errors import InvalidInput
from shared.service.service_settings import EVERYWHERE, PORTS, ServiceSettings
from shared.service.settings import at_least, between, one_of, setting

DEFAULT_STREAMS = 24
MAX_FRAGMENT_BYTES = 900 * 1024
"""A fragment must fit into a session (`max_session_bytes` of a group, 900 KB)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ServiceSettings):
    """Read from `BATON_…` variables."""

    port: int = setting(8001, "port to listen on", PORTS)
    private_port: int | None = setting(
        None,
        "port for `/metrics`, `/status`, `/docs` and `/try`, which BATON_PORT then does not serve; empty: "
        "BATON_PORT serves everything",
        PORTS,
    )
    private_host: str = setting("", "address to listen on for BATON_PRIVATE_PORT; empty: BATON_HOST")
    producer: str = setting("", "the producer's id in ZooKeeper; empty: host name and port")
    streams: int | None = setting(
        None,
        f"number of streams; empty: as the stored table says, {DEFAULT_STREAMS} where there is none yet",
        between(1, 4096, "there are 4,096 slots"),
    )
    retention_ms: int = setting(
        7 * 86_400_000,
        "how long Kafka keeps fragments (when the topics are created here)",
        at_least(60_000, "shorter than the longest session loses fragments that an open session still needs"),
    )
    max_fragment_bytes: int = setting(
        32 * 1024, "largest fragment", between(64, MAX_FRAGMENT_BYTES, "a fragment must fit into a session")
    )
    max_request_bytes: int = setting(
        1024 * 1024,
        "largest request",
        between(64, 64 * 1024 * 1024, "a larger one holds up everybody else while it is parsed"),
    )
    max_request_fragments: int = setting(
        2_500,
        "most fragments in a request",
        between(
            1,
            2_500,
            "a key remembers only 2,500 ids, so a retry of a larger request could store fragments twice",
        ),
    )
    max_inflight_bytes: int = setting(
        64 * 1024 * 1024,
        "most bytes of requests that are being read or wait for Kafka; beyond that 429",
        at_least(2 * 1024 * 1024, "memory grows by up to three times this when Kafka stalls"),
    )
    max_batch_bytes: int = setting(
        512 * 1024,
        "largest batch to one stream",
        between(16 * 1024, 1024 * 1024, "smaller batches cost throughput, topics reject larger ones"),
    )
    compression: str = setting("none", "compression of batches", one_of("none", "snappy", "zstd"))
    ack_timeout_s: float = setting(
        10.0,
        "how long Kafka may take to acknowledge before a request gets 503",
        between(0.2, 120, "shorter than a broker's restart rejects fragments that could have waited"),
    )
    reject_share_bytes: int = setting(
        8 * 1024 * 1024,
        "rejects of one reason that the producer stores at once, and as much again in 5 days; the names of "
        "write keys divide it; more are only counted",
        at_least(1024 * 1024, "it is divided, and a reject has up to 33 KB"),
    )
    write_keys: str = setting(
        "",
        "write keys, `key [scopes] [name=…] [rate=…],…`; a request must carry one of them; empty, and no "
        "file: no key is required",
        secret=True,
    )
    write_keys_file: str = setting(
        "", "file with more write keys in that form, one per line (`#` comments); reread when it changes"
    )
    allowed_origins: str = setting(
        "*",
        "origins whose pages may write, `scheme://host[:port],…`; `*`: all; empty: none; requests without an "
        "origin are not affected",
    )

    def check(self) -> list[str]:
        """Faults of relations between settings."""
        # not super(): slots=True creates a second class, which zero-argument super() does not know
        faults = ServiceSettings.check(self)
        if self.max_fragment_bytes > self.max_request_bytes:
            faults.append(
                f"BATON_MAX_FRAGMENT_BYTES={self.max_fragment_bytes} is more than "
                f"BATON_MAX_REQUEST_BYTES={self.max_request_bytes}: no request could carry such a fragment"
            )
        if 2 * self.max_request_bytes > self.max_inflight_bytes:
            faults.append(
                f"BATON_MAX_REQUEST_BYTES={self.max_request_bytes} is more than half of "
                f"BATON_MAX_INFLIGHT_BYTES={self.max_inflight_bytes}, the bound on bodies that are arriving: "
                "such a request might never be read"
            )
        if self.private_port == self.port:
            faults.append(f"BATON_PRIVATE_PORT={self.private_port} is BATON_PORT: it must be another port")
        if "/" in self.producer or self.producer in (".", ".."):
            faults.append(f"BATON_PRODUCER={self.producer!r} must not contain `/`, nor be `.` or `..`")
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
        """The file of write keys, if one is set."""
        return Path(self.write_keys_file) if self.write_keys_file else None

    @property
    def private_listener(self) -> tuple[str, int] | None:
        """Host and port of the private listener, if there is one."""
        return None if self.private_port is None else (self.private_host or self.host, self.private_port)

    @property
    def private_address(self) -> str:
        """The base URL of the private listener, for control; "" if there is none.

        Its host is BATON_PRIVATE_HOST unless that means all interfaces, else that of `address`.
        """
        if self.private_port is None:
            return ""
        public = urlsplit(self.address)
        host = self.private_host if self.private_host not in EVERYWHERE else ""
        scheme = "https" if self.tls.is_serving else "http"
        return f"{scheme}://{_bracketed(host or public.hostname or '')}:{self.private_port}"

    @property
    def limits(self) -> Limits:
        """The limits of one request."""
        return msgspec.convert(self, Limits, from_attributes=True)

    @property
    def id(self) -> str:
        """The producer's id in ZooKeeper."""
        return self.producer or f"{socket.gethostname()}-{self.port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
