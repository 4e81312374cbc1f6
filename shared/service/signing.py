"""Signs requests between members, and from control to members, with HMAC-SHA256 and a shared secret.

The signature covers method, path, epoch, seq, a digest and the time of signing, one line each. The digest is
that of the header `Baton-Handover` if a request has one (the header contains the body's digest), else that of
the body. A signature is valid for `ACCEPTED_MS` around its time. A request replayed within that time is still
true, or is rejected because of its epoch and seq.
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
"""Largest difference between two machines' clocks plus the transfer, which is usually below a second."""
_MAX_DIGITS = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """The signed fields of a request; `member`, the sender, is not covered by the signature."""

    member: str
    epoch: int
    seq: int
    digest: str
    at_ms: int


def digest_of(content: bytes) -> str:
    """SHA-256 in hex; about 1.2 ms per megabyte."""
    return hashlib.sha256(content).hexdigest()


def signature(secret: bytes, method: str, path: str, *, epoch: int, seq: int, digest: str, at_ms: int) -> str:
    """The signature in hex; `path` without the query.

    >>> signature(b"s", "POST", "/drain", epoch=0, seq=0, digest=digest_of(b""), at_ms=1)[:16]
    'c5056ec3b9e8a34e'
    """
    lines = "\n".join((method, path, str(epoch), str(seq), digest, str(at_ms)))
    return hmac.new(secret, lines.encode(), hashlib.sha256).hexdigest()


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
    """The headers with which `member` (or control) signs a request."""
    return {
        MEMBER: member,
        EPOCH: str(epoch),
        SEQ: str(seq),
        DIGEST: digest,
        AT: str(at_ms),
        SIGNATURE: signature(secret, method, path, epoch=epoch, seq=seq, digest=digest, at_ms=at_ms),
    }


def check_signed(secret: bytes, method: str, path: str, headers: Mapping[str, str], *, now_ms: int) -> Signed:
    """The signed fields in the headers, after checking the signature; the caller must compare the digest.

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
    fields = {"epoch": signed.epoch, "seq": signed.seq, "at_ms": signed.at_ms}
    valid = signature(secret, method, path, digest=signed.digest, **fields)
    # takes the same time for every wrong signature
    if not hmac.compare_digest(valid.encode(), headers[SIGNATURE].encode()):
        raise Unauthorized("the signature is wrong: do both sides have the same BATON_SECRET?")
    # after the signature: an unsigned time means nothing
    if abs(now_ms - signed.at_ms) > ACCEPTED_MS:
        raise Unauthorized(f"signed {now_ms - signed.at_ms} ms ago: do the clocks agree?")
    return signed


def _number(headers: Mapping[str, str], name: str) -> int:
    raw = headers.get(name, "")
    # `isdigit` accepts digits of other scripts, and `int` is slow for very long numbers
    if not (raw.isascii() and raw.removeprefix("-").isdigit() and len(raw) <= _MAX_DIGITS):
        raise Unauthorized(f"the header {name} is not a number")
    return int(raw)
