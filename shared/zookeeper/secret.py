"""The secret by which members and control sign their requests: configured, or made once for all.

BATON_SECRET if it is set; else random bytes at the znode `/baton/secret`, made by whoever comes first. Who
can read that znode can also claim streams: ZooKeeper's border is the secret's. Used by consumer and control.
"""

from __future__ import annotations

import secrets

from shared.errors import InvalidInput
from shared.model.names import Names
from shared.zookeeper.znodes import Znodes

SECRET_BYTES = 32
"""The size of the hash that is keyed with it (RFC 2104, section 3)."""
LEAST_BYTES = 16
"""Shorter ones can be guessed."""


async def ensure_secret(znodes: Znodes, names: Names, configured: str) -> bytes:
    """The one secret of this Baton; `configured` (BATON_SECRET) if it is not empty.

    Raises ZooKeeperUnavailable; InvalidInput when the znode holds less than `LEAST_BYTES` bytes.
    """
    if configured:
        return configured.encode()
    await znodes.make_path(names.root)
    while (znode := await znodes.get(names.secret)) is None:
        # whoever was first, what is read next is the secret of all
        await znodes.create(names.secret, secrets.token_bytes(SECRET_BYTES))
    if len(znode.data) < LEAST_BYTES:
        raise InvalidInput(
            f"{names.secret} holds less than {LEAST_BYTES} bytes: delete it, or set BATON_SECRET"
        )
    return znode.data
