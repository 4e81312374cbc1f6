"""A body on its way in, checked against its signed envelope: by the server and by the client alike.

The signed length bounds the read, and the digest is computed while the chunks arrive. Only a body that is the
signed one is decompressed, into exactly the signed number of bytes. Used by `routes.py` and
`adapters/http_peers.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import cast

from services.consumer.handover.messages import ZSTD, decompress
from shared.errors import BundleRejected, Unauthorized
from shared.service.signing import Envelope


class SealedBody:
    """The body of an envelope; neither sent nor decoded may it exceed `limit` bytes.

    `bytes`: what it takes in memory once it is decoded. Raises BundleRejected on creation if it is too large
    or its encoding is unknown.
    """

    def __init__(self, envelope: Envelope, limit: int) -> None:
        if envelope.encoding not in ("", ZSTD):
            raise BundleRejected(f"the encoding {envelope.encoding!r} is not known")
        self._envelope = envelope
        self.bytes = envelope.decoded_length if envelope.encoding else envelope.length
        if max(self.bytes, envelope.length) > limit:
            raise BundleRejected(f"a body may have at most {limit} bytes")

    def __repr__(self) -> str:
        return f"<SealedBody of {self._envelope.length} bytes, {self.bytes} decoded>"

    async def read(self, chunks: AsyncIterator[bytes]) -> bytes:
        """The decoded body. Raises Unauthorized if it is not the signed one, BundleRejected if it does not
        decode to the signed length.
        """
        envelope, digest = self._envelope, hashlib.sha256()
        # it stays a bytearray, because one copy of 138 MB takes 50 ms
        body = bytearray()
        size = 0
        async for chunk in chunks:
            size += len(chunk)
            if size > envelope.length:
                break
            digest.update(chunk)
            body += chunk
        if size != envelope.length or digest.hexdigest() != envelope.digest:
            raise Unauthorized("the body is not the one that was signed")
        arrived = cast("bytes", body)
        if not envelope.encoding:
            return arrived
        return await asyncio.to_thread(decompress, arrived, self.bytes)
