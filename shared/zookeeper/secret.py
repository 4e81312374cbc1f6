"""The secret with which members and control sign their requests: configured, or created once for all.

It is BATON_SECRET if that is set, else random bytes in the znode `/baton/secret`, which the first process
creates. Anyone who can read that znode can also claim streams, so access to ZooKeeper protects both. Used by
consumer and control.
"""

from __future__ import annotations

import secrets

from shared.errors import InvalidInput
from shared.model.names import Names
from shared.zookeeper.znodes import Znodes

SECRET_BYTES = 32
"""The size of the keyed hash (RFC 2104, section 3)."""
MIN_BYTES = 16
"""A shorter secret can be guessed."""


async def ensure_secret(znodes: Znodes, names: Names, configured: str) -> bytes:
    """The secret of this Baton: `configured` (BATON_SECRET) unless it is empty.

    Raises ZooKeeperUnavailable; InvalidInput when the znode holds less than `MIN_BYTES` bytes.
    """
    if configured:
        return configured.encode()
    await znodes.make_path(names.root)
    while (znode := await znodes.get(names.secret)) is None:
        # another process may be first: use what the next read returns
        await znodes.create(names.secret, secrets.token_bytes(SECRET_BYTES))
    # an empty secret would let anybody sign
    if len(znode.data) < MIN_BYTES:
        raise InvalidInput(
            f"{names.secret} holds less than {MIN_BYTES} bytes: delete it, or set BATON_SECRET"
        )
    return znode.data
