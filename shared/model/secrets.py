"""The secrets of one Baton: the key to sign with, and during a rotation a second one that is only accepted.

`shared/zookeeper/secret.py` finds them, `shared/service/signing.py` signs and checks with them.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Never in a `repr`: logs must not contain them."""

    signing: bytes = field(repr=False)
    accepted: bytes | None = field(default=None, repr=False)
