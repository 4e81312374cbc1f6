"""Limits wrong tokens by address: ten at once, then one a second.

Tokens are too long to guess; this keeps guesses from filling the log. A right token always passes: an office
or a proxy is one address, and whoever shows wrong tokens from there must not lock out everybody else.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

from shared.service.rate_limit import RateLimit

AT_ONCE = 10
PER_S = 1.0
MAX_ADDRESSES = 4096
"""Addresses to remember; the least recently used one is forgotten first."""


class Attempts:
    """The limits by address; `now_s` is monotonic."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._limits: OrderedDict[str, RateLimit] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Attempts of {len(self._limits)} addresses>"

    def limit_of(self, address: str) -> RateLimit:
        """The limit of this address."""
        network = network_of(address)
        limit = self._limits.setdefault(
            network, RateLimit("this address", PER_S, most=AT_ONCE, now_s=self._now_s)
        )
        self._limits.move_to_end(network)
        if len(self._limits) > MAX_ADDRESSES:
            self._limits.popitem(last=False)
        return limit


def network_of(address: str) -> str:
    """What one machine can be expected to have: an IPv4 address, or the /64 of an IPv6 address.

    >>> network_of("192.0.2.7"), network_of("2001:db8::7:7")
    ('192.0.2.7', '2001:db8::/64')
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    # a socket for both versions of IP sees IPv4 addresses like this
    found = getattr(found, "ipv4_mapped", None) or found
    return str(ipaddress.ip_network((found, 64), strict=False)) if found.version == 6 else str(found)
