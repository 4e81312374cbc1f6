"""The bounds of a listener's connections. Made by `__main__.py`, used by connection.py."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.server.connections import Connections, Reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long a client may take, in seconds, and how many may be connected.

    All listeners share `connections`, and each has its own `reserve`: a crowd at the public port cannot
    displace an operator at the private one.
    """

    header_timeout_s: float
    body_timeout_s: float
    connections: Connections = field(default_factory=Connections)
    reserve: Reserve = field(default_factory=Reserve)
