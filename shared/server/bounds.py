"""The bounds of a listener's connections. Made from the settings by `__main__.py`, used by connection.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from shared.server.connections import Connections, Reserve, possible_connections
from shared.service.service_settings import ServiceSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long a client may take, in seconds, and how many may be connected.

    All listeners share `connections`, and each has its own `reserve`: a crowd at the public port cannot
    displace an operator at the private one. `now_s` measures a connection's turn.
    """

    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    keep_alive_s: float = 65.0
    """Longer than the 60 s after which load balancers close idle connections: they must close first."""
    connections: Connections = field(default_factory=Connections)
    reserve: Reserve = field(default_factory=Reserve)
    now_s: Callable[[], float] = time.perf_counter


def bounds_for(settings: ServiceSettings, listeners: int = 1) -> Bounds:
    """The bounds of a process with so many listeners; each of them needs a `reserve` of its own."""
    return Bounds(
        header_timeout_s=settings.header_timeout_s,
        body_timeout_s=settings.read_timeout_s,
        connections=Connections(possible_connections(settings.max_connections, listeners)),
    )
