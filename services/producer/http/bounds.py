"""The bounds of the server's protocol, and what it needs from the door to refuse what exceeds them.

Made by `__main__.py`, used by pipeline.py and protocol.py, which stand in front of the door.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from services.producer.http.connections import Connections, Reserve
from services.producer.http.limits import Inflight


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long a client may take, in seconds, and how many may be connected.

    All listeners share `connections`, and each has its own `reserve`: a crowd at the public port cannot
    displace an operator at the private one. `inflight` counts requests that wait behind others. `headers_for`
    returns the headers for the origin of a request (its ASGI scope), and `on_rejected` gets the status and
    kind of each rejection.
    """

    header_timeout_s: float
    body_timeout_s: float
    connections: Connections = field(default_factory=Connections)
    reserve: Reserve = field(default_factory=Reserve)
    inflight: Inflight = field(default_factory=lambda: Inflight(sys.maxsize))
    headers_for: Callable[[Any], Iterable[tuple[bytes, bytes]]] = lambda scope: ()
    on_rejected: Callable[[int, str], None] = lambda status, kind: None
