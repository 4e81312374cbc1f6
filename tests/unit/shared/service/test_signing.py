"""Sealed requests: an envelope is valid for one recipient and one request, and for a while."""

from __future__ import annotations

import base64
import hmac
from dataclasses import replace

import msgspec
import pytest

from shared.errors import Unauthorized
from shared.model.secrets import Secrets
from shared.service.signing import (
    ACCEPTED_MS,
    ENVELOPE,
    Envelope,
    Here,
    digest_of,
    open_envelope,
    sealed_headers,
)

SECRETS = Secrets(signing=b"of the members of one Baton")
NEXT = b"of the same members, later"
NOW_MS = 1_795_000_000_000
TARGET = "/handover/default/3?epoch=7"
HERE = Here(member="m2", namespace="x", group="default")
SEALED = Envelope(
    sender="m1",
    recipient="m2",
    namespace="x",
    group="default",
    at_ms=NOW_MS,
    nonce="a1",
    method="PUT",
    target=TARGET,
    digest=digest_of(b"body"),
    length=4,
)


def opened(
    headers: dict[str, str],
    *,
    secrets: Secrets = SECRETS,
    here: Here = HERE,
    method: str = "PUT",
    target: str = TARGET,
    now_ms: int = NOW_MS,
) -> Envelope:
    return open_envelope(secrets, here, method, target, headers, now_ms=now_ms)


def test_an_envelope_is_json_with_an_hmac() -> None:
    """Other programs can make one: base64url, a dot, and the HMAC-SHA256 of those characters in hex."""
    payload, _, given = sealed_headers(SECRETS, SEALED)[ENVELOPE].partition(".")

    assert msgspec.json.decode(base64.urlsafe_b64decode(payload))["recipient"] == "m2"
    assert given == hmac.new(SECRETS.signing, payload.encode(), "sha256").hexdigest()


def test_an_envelope_is_opened_by_its_recipient() -> None:
    """With everything that was signed."""
    assert opened(sealed_headers(SECRETS, SEALED), now_ms=NOW_MS + 5) == SEALED


@pytest.mark.parametrize("field", SEALED.__struct_fields__)
def test_no_field_can_be_changed(field: str) -> None:
    """The signature covers every one of them."""
    payload, _, given = sealed_headers(SECRETS, SEALED)[ENVELOPE].partition(".")
    fields = msgspec.json.decode(base64.urlsafe_b64decode(payload)) | {field: "0"}
    changed = base64.urlsafe_b64encode(msgspec.json.encode(fields)).decode()

    with pytest.raises(Unauthorized, match="signature is wrong"):
        opened({ENVELOPE: f"{changed}.{given}"})


@pytest.mark.parametrize(
    ("here", "method", "target", "reason"),
    [
        (replace(HERE, member="m3"), "PUT", TARGET, "signed for member 'm2', not 'm3'"),
        (replace(HERE, namespace=""), "PUT", TARGET, "signed for namespace 'x', not ''"),
        (replace(HERE, group="fraud"), "PUT", TARGET, "signed for group 'default', not 'fraud'"),
        (HERE, "POST", TARGET, "signed for request 'PUT "),
        (HERE, "PUT", "/handover/default/4?epoch=7", "signed for request 'PUT "),
        (HERE, "PUT", "/handover/default/3?epoch=8", "signed for request 'PUT "),
    ],
)
def test_an_envelope_is_valid_for_one_recipient_and_one_request(
    here: Here, method: str, target: str, reason: str
) -> None:
    """A captured request works nowhere else, also if several Batons share a secret."""
    with pytest.raises(Unauthorized, match=reason):
        opened(sealed_headers(SECRETS, SEALED), here=here, method=method, target=target)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "is not signed$"),
        ({"Baton-Signature": "0" * 64}, "not signed in an envelope, but as an earlier version of Baton does"),
        ({ENVELOPE: "e30"}, "signature is wrong"),
        ({ENVELOPE: "."}, "signature is wrong"),
        ({ENVELOPE: "é.é"}, "signature is wrong"),
        ({ENVELOPE: "A" * 20_000}, "longer than 16384 characters"),
    ],
)
def test_an_unsigned_request_is_rejected_with_a_reason(headers: dict[str, str], reason: str) -> None:
    """During a rolling update the reason names the other version."""
    with pytest.raises(Unauthorized, match=reason):
        opened(headers)


@pytest.mark.parametrize("payload", [b"", b"A", b"e30=", base64.urlsafe_b64encode(b'{"length":-1}')])
def test_a_signed_envelope_of_another_version_is_rejected(payload: bytes) -> None:
    """It is refused like a forged one, instead of a crash."""
    signature = hmac.new(SECRETS.signing, payload, "sha256").hexdigest()

    with pytest.raises(Unauthorized, match="unreadable"):
        opened({ENVELOPE: f"{payload.decode()}.{signature}"})


@pytest.mark.parametrize("late_ms", [-ACCEPTED_MS - 1, ACCEPTED_MS + 1])
def test_an_envelope_expires(late_ms: int) -> None:
    """One from a clock that is far ahead is rejected too; at the limit both are valid."""
    headers, inside_ms = sealed_headers(SECRETS, SEALED), late_ms + (1 if late_ms < 0 else -1)

    assert opened(headers, now_ms=NOW_MS + inside_ms)
    with pytest.raises(Unauthorized, match="do the clocks agree"):
        opened(headers, now_ms=NOW_MS + late_ms)


def test_two_secrets_are_valid_during_a_rotation() -> None:
    """At each step of a rotation every process accepts what any other signs with."""
    old, both = SECRETS, Secrets(signing=SECRETS.signing, accepted=NEXT)
    swapped, new = Secrets(signing=NEXT, accepted=SECRETS.signing), Secrets(signing=NEXT)

    for one, other in ((old, both), (both, swapped), (swapped, new)):
        for sender, receiver in ((one, other), (other, one), (one, one), (other, other)):
            assert opened(sealed_headers(sender, SEALED), secrets=receiver) == SEALED
    with pytest.raises(Unauthorized, match="signature is wrong"):
        opened(sealed_headers(old, SEALED), secrets=new)


def test_secrets_do_not_appear_in_logs() -> None:
    """Their `repr` hides both."""
    assert "Baton" not in repr(SECRETS)
    assert "later" not in repr(Secrets(signing=SECRETS.signing, accepted=NEXT))
