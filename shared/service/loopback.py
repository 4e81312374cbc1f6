"""Which hosts are this machine."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether the host, a name or an address (IPv6 with or without brackets), is this machine's loopback.

    >>> [is_loopback(host) for host in ("127.0.0.1", "[::1]", "localhost", "kafka", "10.0.0.1")]
    [True, True, True, False, False]
    >>> is_loopback("::ffff:127.0.0.1")  # as a socket for both versions of IP sees it
    True
    """
    try:
        address = ipaddress.ip_address(host.strip("[]"))
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback
    except ValueError:
        return host == "localhost"
