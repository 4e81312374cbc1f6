"""The certificates of a local stack: who trusts them, for how long, and who may read their keys."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cli.stack.secured.certificates import (
    AUTHORITY_LIFETIME,
    LIFETIME,
    Certificate,
    ensure_authority,
    make_authority,
)

NOW = datetime.now(UTC)


def shake_hands(trust: Path, server: Certificate, client: Certificate | None, host: str) -> None:
    """Lets a client and a server that demands a certificate agree, in memory. Raises ssl.SSLError."""
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=trust)
    serving.load_cert_chain(server.keystore)
    serving.verify_mode = ssl.CERT_REQUIRED
    asking = ssl.create_default_context(cafile=trust)
    if client is not None:
        asking.load_cert_chain(client.certificate, client.key)
    forth, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        asking.wrap_bio(back, forth, server_hostname=host),
        serving.wrap_bio(forth, back, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_a_stacks_servers_and_clients_trust_each_other(tmp_path: Path, host: str) -> None:
    """On every loopback name; a certificate serves on either side, and strictly checked."""
    authority = make_authority(tmp_path)
    server, client = authority.issue("broker"), authority.issue("member")

    shake_hands(authority.trust, server, client, host)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("expired", "certificate has expired"),
        ("foreign", "(unable to get local issuer certificate|signature failure|self.signed)"),
        ("other host", "certificate is not valid for"),
        ("none", "peer did not return a certificate"),
    ],
)
def test_what_the_authority_has_not_signed_for_now_and_here_is_rejected(
    tmp_path: Path, fault: str, words: str
) -> None:
    """Expired, of another authority, for another host, or missing."""
    authority = make_authority(tmp_path / "own")
    server, client = authority.issue("broker"), authority.issue("member")
    if fault == "expired":
        server = authority.issue("broker", lifetime=timedelta(days=1), now=NOW - timedelta(days=2))
    if fault == "foreign":
        server = make_authority(tmp_path / "foreign").issue("broker")

    with pytest.raises(ssl.SSLError, match=words):
        shake_hands(
            authority.trust,
            server,
            None if fault == "none" else client,
            "10.0.0.1" if fault == "other host" else "localhost",
        )


def test_only_the_owner_may_read_a_private_key(tmp_path: Path) -> None:
    """Also if a file of that name was there before, readable by everybody."""
    (tmp_path / "member.key").write_text("old")
    (tmp_path / "member.key").chmod(0o644)
    issued = make_authority(tmp_path).issue("member")

    private = {"ca.key", issued.key.name, issued.keystore.name}
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert {name for name, mode in modes.items() if mode == 0o600} == private
    assert all("PRIVATE" not in path.read_text() for path in tmp_path.iterdir() if path.name not in private)


def test_an_authority_is_kept_while_it_outlives_what_it_signs(tmp_path: Path) -> None:
    """Then a new one takes its place, before the old one shortens a certificate."""
    first = make_authority(tmp_path, now=NOW)
    almost = NOW + AUTHORITY_LIFETIME - LIFETIME

    assert ensure_authority(tmp_path, now=almost - timedelta(days=1)).trust.read_bytes() == (
        first.trust.read_bytes()
    )
    kept = first.trust.read_bytes()
    assert ensure_authority(tmp_path, now=almost + timedelta(days=1)).trust.read_bytes() != kept
