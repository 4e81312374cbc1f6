"""Signatures of requests between members, and from control to members: HMAC-SHA256 by a shared secret.

What is signed: method, path, epoch, seq, a digest, and the time of signing, one line each. The digest is that
of the header `Baton-Handover` where a request has one (which holds the body's digest), else of the body.
A signature counts for `ACCEPTED_MS` around its time: replayed within it, a request says what is still true
or is refused by epoch and seq.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from shared.errors import Unauthorized

MEMBER = "Baton-Member"
EPOCH = "Baton-Epoch"
SEQ = "Baton-Seq"
DIGEST = "Baton-Digest"
AT = "Baton-At"
SIGNATURE = "Baton-Signature"
ACCEPTED_MS = 60_000
"""How far the clocks of two machines may be apart, the journey included: usually it is less than a second."""
_MAX_DIGITS = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """What a request says of itself under its signature; `member` is who says so, unsigned."""

    member: str
    epoch: int
    seq: int
    digest: str
    at_ms: int


def digest_of(content: bytes) -> str:
    """SHA-256 in hex; about 1.2 ms a megabyte."""
    return hashlib.sha256(content).hexdigest()


def signature(secret: bytes, method: str, path: str, *, epoch: int, seq: int, digest: str, at_ms: int) -> str:
    """The signature in hex; `path` without the query.

    >>> signature(b"s", "POST", "/drain", epoch=0, seq=0, digest=digest_of(b""), at_ms=1)[:16]
    'c5056ec3b9e8a34e'
    """
    said = "\n".join((method, path, str(epoch), str(seq), digest, str(at_ms)))
    return hmac.new(secret, said.encode(), hashlib.sha256).hexdigest()


def is_signed(
    secret: bytes, method: str, path: str, *, epoch: int, seq: int, digest: str, at_ms: int, given: str
) -> bool:
    """Whether `given` is that signature; takes the same time for every wrong one."""
    right = signature(secret, method, path, epoch=epoch, seq=seq, digest=digest, at_ms=at_ms)
    return hmac.compare_digest(right.encode(), given.encode())


def signed_headers(
    secret: bytes,
    member: str,
    method: str,
    path: str,
    *,
    epoch: int = 0,
    seq: int = 0,
    digest: str,
    at_ms: int,
) -> dict[str, str]:
    """The headers by which `member` (or control) signs a request."""
    return {
        MEMBER: member,
        EPOCH: str(epoch),
        SEQ: str(seq),
        DIGEST: digest,
        AT: str(at_ms),
        SIGNATURE: signature(secret, method, path, epoch=epoch, seq=seq, digest=digest, at_ms=at_ms),
    }


def check_signed(secret: bytes, method: str, path: str, headers: Mapping[str, str], *, now_ms: int) -> Signed:
    """What the headers say, once their signature is found right; the digest is still to be compared.

    Raises Unauthorized for a missing, wrong or old signature.
    """
    if SIGNATURE not in headers:
        raise Unauthorized("the request is not signed")
    signed = Signed(
        member=headers.get(MEMBER, ""),
        epoch=_number(headers, EPOCH),
        seq=_number(headers, SEQ),
        digest=headers.get(DIGEST, ""),
        at_ms=_number(headers, AT),
    )
    if not is_signed(
        secret,
        method,
        path,
        epoch=signed.epoch,
        seq=signed.seq,
        digest=signed.digest,
        at_ms=signed.at_ms,
        given=headers[SIGNATURE],
    ):
        raise Unauthorized("the signature is wrong: are both of one Baton, with one BATON_SECRET?")
    if abs(now_ms - signed.at_ms) > ACCEPTED_MS:
        raise Unauthorized(f"signed {now_ms - signed.at_ms} ms ago: do the clocks agree?")
    return signed


def _number(headers: Mapping[str, str], name: str) -> int:
    raw = headers.get(name, "")
    if not (raw.isascii() and raw.removeprefix("-").isdigit() and len(raw) <= _MAX_DIGITS):
        raise Unauthorized(f"the header {name} is no number")
    return int(raw)
