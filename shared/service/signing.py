"""Seals requests between members, and from control to members, in one signed envelope per request.

The envelope says everything that a receiver acts on: sender, recipient, namespace, group, time, a nonce,
method and target, the body's digest and lengths, and the message itself. It travels as base64url of its JSON,
followed by a dot and the HMAC-SHA256 of exactly those characters, so the signature is checked before anything
is decoded. It is valid for `ACCEPTED_MS` around its time; the receiver accepts its nonce once
(`services/consumer/handover/nonces.py`). Used by consumer and control.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets as random_secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from shared.errors import Unauthorized
from shared.model.secrets import Secrets

ENVELOPE = "Baton-Envelope"
ACCEPTED_MS = 60_000
"""Largest difference between two machines' clocks plus the transfer, which is usually below a second."""
MAX_ENVELOPE_CHARS = 16 * 1024
"""About a thousand are usual. Servers accept headers of 64 KB, and no unsigned byte is worth more work."""
_FORMER_SIGNATURE = "Baton-Signature"
"""The header with which the version before envelopes signed."""
_NOTHING = msgspec.Raw(b"null")

Size = Annotated[int, msgspec.Meta(ge=0)]


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What is signed with a request, or with an answer (whose `method` is the status).

    `target`: path and query. `digest`, `length`: of the body as it is sent; `encoding` and `decoded_length`
    say what it decodes to. An answer repeats the nonce of its request.
    """

    sender: str
    recipient: str
    namespace: str
    group: str
    at_ms: int
    nonce: str
    method: str
    target: str
    digest: str
    length: Size
    encoding: str = ""
    decoded_length: Size = 0
    message: msgspec.Raw = _NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Who a process is to others: envelopes for another recipient, namespace or group are refused."""

    member: str
    namespace: str
    group: str


def digest_of(content: bytes) -> str:
    """SHA-256 in hex; about 1.2 ms per megabyte."""
    return hashlib.sha256(content).hexdigest()


def new_nonce() -> str:
    """16 random bytes in hex: unique without coordination."""
    return random_secrets.token_hex(16)


def sealed_headers(secrets: Secrets, envelope: Envelope) -> dict[str, str]:
    """The header that carries the envelope and its signature."""
    payload = base64.urlsafe_b64encode(msgspec.json.encode(envelope))
    return {ENVELOPE: f"{payload.decode()}.{_signature(secrets.signing, payload)}"}


def open_envelope(
    secrets: Secrets, here: Here, method: str, target: str, headers: Mapping[str, str], *, now_ms: int
) -> Envelope:
    """The envelope of this very request to this very process.

    Raises Unauthorized if it is missing, forged, old, or meant for another recipient or request. The caller
    still has to check its nonce and the body.
    """
    envelope = _verified(secrets, headers)
    # after the signature: an unsigned time means nothing
    if abs(now_ms - envelope.at_ms) > ACCEPTED_MS:
        raise Unauthorized(f"signed {now_ms - envelope.at_ms} ms ago: do the clocks agree?")
    for what, signed, actual in (
        ("member", envelope.recipient, here.member),
        ("namespace", envelope.namespace, here.namespace),
        ("group", envelope.group, here.group),
        ("request", f"{envelope.method} {envelope.target}", f"{method} {target}"),
    ):
        if signed != actual:
            raise Unauthorized(f"signed for {what} {signed!r}, not {actual!r}")
    return envelope


def _verified(secrets: Secrets, headers: Mapping[str, str]) -> Envelope:
    value = headers.get(ENVELOPE, "")
    if not value:
        former = " in an envelope, but as an earlier version of Baton does" * (_FORMER_SIGNATURE in headers)
        raise Unauthorized(f"the request is not signed{former}")
    if len(value) > MAX_ENVELOPE_CHARS:
        raise Unauthorized(f"the header {ENVELOPE} is longer than {MAX_ENVELOPE_CHARS} characters")
    payload, _, given = value.encode().partition(b".")
    keys = [key for key in (secrets.signing, secrets.accepted) if key is not None]
    # takes the same time for every wrong signature
    if not any(hmac.compare_digest(_signature(key, payload).encode(), given) for key in keys):
        raise Unauthorized("the signature is wrong: do both sides have the same BATON_SECRET?")
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(payload), type=Envelope)
    except (ValueError, msgspec.DecodeError) as error:  # signed, so by another version
        raise Unauthorized(f"the envelope is unreadable: {error}") from None


def _signature(secret: bytes, payload: bytes) -> str:
    return hmac.new(secret, payload, hashlib.sha256).hexdigest()
