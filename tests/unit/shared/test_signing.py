"""Signed requests: signed fields cannot be changed, and signatures expire."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest

from shared.errors import Unauthorized
from shared.service.signing import (
    ACCEPTED_MS,
    Signed,
    check_signed,
    digest_of,
    signature,
    signed_headers,
)

SECRET = b"of the members of one Baton"
NOW_MS = 1_795_000_000_000
PATH = "/handover/default/3"
SIGNED: dict[str, Any] = {"epoch": 7, "seq": 41, "digest": digest_of(b"body"), "at_ms": NOW_MS}


def headers() -> dict[str, str]:
    return signed_headers(SECRET, "m1", "PUT", PATH, **SIGNED)


def test_a_signature_is_an_hmac_over_lines() -> None:
    """Other programs can compute it: method, path, epoch, seq, digest and time, one line each."""
    lines = f"PUT\n{PATH}\n7\n41\n{hashlib.sha256(b'body').hexdigest()}\n{NOW_MS}".encode()

    given = signature(SECRET, "PUT", PATH, **SIGNED)

    assert given == hmac.new(SECRET, lines, "sha256").hexdigest()


def test_signed_headers_are_verified_and_read() -> None:
    """With the secret one can read what was signed."""
    assert check_signed(SECRET, "PUT", PATH, headers(), now_ms=NOW_MS + 5) == Signed(member="m1", **SIGNED)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Baton-Epoch", "8"),
        ("Baton-Seq", "42"),
        ("Baton-Digest", digest_of(b"another")),
        ("Baton-At", str(NOW_MS + 1)),
        ("Baton-Signature", "0" * 64),
        ("Baton-Signature", ""),
        ("Baton-Signature", "é"),
    ],
)
def test_no_signed_field_can_be_changed(name: str, value: str) -> None:
    """The signature covers every header, and no other signature is accepted."""
    with pytest.raises(Unauthorized, match="signature is wrong"):
        check_signed(SECRET, "PUT", PATH, headers() | {name: value}, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("secret", "method", "path"),
    [(b"another", "PUT", PATH), (SECRET, "POST", PATH), (SECRET, "PUT", "/handover/default/4")],
)
def test_a_signature_is_valid_for_one_secret_method_and_path(secret: bytes, method: str, path: str) -> None:
    """So a captured offer cannot be replayed as a completion, or for another stream."""
    with pytest.raises(Unauthorized, match="signature is wrong"):
        check_signed(secret, method, path, headers(), now_ms=NOW_MS)


@pytest.mark.parametrize("name", ["Baton-Epoch", "Baton-Seq", "Baton-At"])
@pytest.mark.parametrize("value", ["", "x", "1.5", "٣", "--1", "9" * 5000])
def test_headers_that_are_not_numbers_are_rejected_by_name(name: str, value: str) -> None:
    """With a clear error instead of a crash."""
    with pytest.raises(Unauthorized, match=name):
        check_signed(SECRET, "PUT", PATH, headers() | {name: value}, now_ms=NOW_MS)


def test_a_request_without_a_signature_is_rejected() -> None:
    """Whatever its other headers say."""
    unsigned = {name: value for name, value in headers().items() if name != "Baton-Signature"}

    with pytest.raises(Unauthorized, match="not signed"):
        check_signed(SECRET, "PUT", PATH, unsigned, now_ms=NOW_MS)


@pytest.mark.parametrize("late_ms", [-ACCEPTED_MS - 1, ACCEPTED_MS + 1])
def test_a_signature_expires(late_ms: int) -> None:
    """One from a clock that is far ahead is rejected too; at the limit both are valid."""
    inside_ms = late_ms + (1 if late_ms < 0 else -1)

    assert check_signed(SECRET, "PUT", PATH, headers(), now_ms=NOW_MS + inside_ms)
    with pytest.raises(Unauthorized, match="do the clocks agree"):
        check_signed(SECRET, "PUT", PATH, headers(), now_ms=NOW_MS + late_ms)
