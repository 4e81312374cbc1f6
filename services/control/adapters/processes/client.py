"""Makes the client for what control asks now and then: acts of members, owners, drivers and queue workers.

One of control's files that import httpx. `kept_connections.py` is for what it asks all the time.
"""

from __future__ import annotations

import httpx

from shared.service.tls import TlsFiles, client_context

HttpClient = httpx.AsyncClient


def http_client(tls: TlsFiles | None = None) -> httpx.AsyncClient:
    """A client without a time-out: each call sets its own."""
    # trust_env: proxies in the environment lead to the outside world
    verify = True if tls is None else client_context(tls)
    return httpx.AsyncClient(verify=verify, timeout=None, trust_env=False)
