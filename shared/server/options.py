"""The options of `http_server` by which a listener's connections are ours. Used by the services' mains."""

from __future__ import annotations

import functools
from typing import Any

from shared.server.bounds import Bounds
from shared.server.connection import HttpConnection
from shared.server.face import Face

KEEP_ALIVE_S = 65
"""Longer than the 60 s after which load balancers close idle connections: they must close first."""


def server_options(face: Face, bounds: Bounds) -> dict[str, Any]:
    """The options of a listener whose requests `face` answers."""
    return {
        "http": functools.partial(HttpConnection, face=face, bounds=bounds),
        "ws": "none",
        "lifespan": "off",
        # nothing here depends on a client's address, and the headers could be forged
        "proxy_headers": False,
        "timeout_keep_alive": KEEP_ALIVE_S,
    }
