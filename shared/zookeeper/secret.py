"""The secrets with which members and control sign their requests: configured, or created once for all.

The one that signs is BATON_SECRET if that is set, else random bytes in the znode `/baton/secret`, which the
first process creates. BATON_ACCEPTED_SECRET is accepted as well, while secrets are rotated
(docs/operations.md has the steps). Anyone who can read the znode can also claim streams, so access to
ZooKeeper protects both. Used by consumer and control.
"""

from __future__ import annotations

import secrets

from shared.errors import InvalidInput
from shared.model.names import Names
from shared.model.secrets import Secrets
from shared.zookeeper.znodes import Znodes

SECRET_BYTES = 32
"""The size of the keyed hash (RFC 2104, section 3)."""
MIN_BYTES = 16
"""A shorter secret can be guessed."""
IN_ZOOKEEPER = "zookeeper"
"""As BATON_ACCEPTED_SECRET it means the znode's secret: random bytes do not fit into a variable."""


async def ensure_secrets(znodes: Znodes, names: Names, configured: str, accepted: str = "") -> Secrets:
    """The secret that signs, `configured` or else the znode's, and the one that is only accepted, if any.

    Raises ZooKeeperUnavailable; InvalidInput when the znode holds less than `MIN_BYTES` bytes.
    """
    signing = configured.encode() or await _in_zookeeper(znodes, names)
    also = await _in_zookeeper(znodes, names) if accepted == IN_ZOOKEEPER else accepted.encode()
    return Secrets(signing=signing, accepted=also or None)


async def _in_zookeeper(znodes: Znodes, names: Names) -> bytes:
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
