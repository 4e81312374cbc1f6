"""The files for HTTPS: which of them a service starts with, and what it says about the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from cli.stack.secured.certificates import Authority, make_authority
from services.consumer.settings import ConsumerSettings
from shared.errors import SettingsInvalid
from shared.service.settings import load


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path)


def loaded(**files: Path | str) -> ConsumerSettings | list[str]:
    """The settings with these files, or their faults."""
    try:
        return load(
            ConsumerSettings, {f"BATON_TLS_{name.upper()}_FILE": str(file) for name, file in files.items()}
        )
    except SettingsInvalid as error:
        return error.faults


def test_an_address_says_whether_its_service_speaks_https(authority: Authority) -> None:
    """So members of both kinds work together. One file may hold certificate and key."""
    made = authority.issue("a")

    plain = loaded(ca=authority.trust)
    apart = loaded(certificate=made.certificate, key=made.key, ca=authority.trust)
    together = loaded(certificate=made.keystore, client_ca=authority.trust)

    addresses = [found.address for found in (plain, apart, together) if isinstance(found, ConsumerSettings)]
    assert addresses == [f"{scheme}://127.0.0.1:8010" for scheme in ("http", "https", "https")]


def test_a_service_does_not_start_with_unusable_files(authority: Authority, tmp_path: Path) -> None:
    """One sentence names the setting, the file and the reason; a key with a password asks nobody for it."""
    one, other = authority.issue("a"), authority.issue("b")
    key = serialization.load_pem_private_key(one.key.read_bytes(), password=None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    none = tmp_path / "none"
    own = "BATON_TLS_CERTIFICATE_FILE"

    assert loaded(key=one.key) == [f"BATON_TLS_KEY_FILE needs {own}"]
    assert loaded(client_ca=authority.trust) == [f"BATON_TLS_CLIENT_CA_FILE needs {own}"]
    assert loaded(ca=none) == [f"BATON_TLS_CA_FILE={none}: No such file or directory"]
    assert loaded(certificate=none) == [f"{own}={none}: No such file or directory"]
    mismatch = f"{own}={one.certificate}: KEY_VALUES_MISMATCH"
    assert loaded(certificate=one.certificate, key=other.key) == [mismatch]
    (fault,) = loaded(certificate=one.certificate, key=locked)  # type: ignore[misc]
    assert str(fault).startswith(f"{own}={one.certificate}: ")
    trust = one.key
    (fault,) = loaded(certificate=one.certificate, key=one.key, client_ca=trust)  # type: ignore[misc]
    assert str(fault).startswith(f"BATON_TLS_CLIENT_CA_FILE={trust}: ")
