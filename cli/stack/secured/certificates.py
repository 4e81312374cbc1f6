"""An authority of its own for a local stack, and the certificates that it signs for servers and clients.

Every file is PEM. A private key never leaves its folder, and only its owner may read it. `name.keystore.pem`
holds the key and the certificate in one file, as Kafka and ZooKeeper want them. Nothing here is fit for more
than one machine: the authority's key lies beside what it has signed. Used by `baton up --secure` and tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shared.service.private_files import write_private

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
AUTHORITY_LIFETIME = timedelta(days=90)
LIFETIME = timedelta(days=30)
"""Short, as the stack makes new ones at each start."""
CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The files of a certificate; `keystore` is key and certificate in one."""

    certificate: Path
    key: Path
    keystore: Path


class Authority:
    """Signs certificates with the key in its folder. `trust`: the file that clients and servers trust."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trust = folder / "ca.pem"
        self._certificate = x509.load_pem_x509_certificate(self.trust.read_bytes())
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key

    def __repr__(self) -> str:
        return f"<Authority in {self.folder}, until {self.expires:%Y-%m-%d}>"

    @property
    def expires(self) -> datetime:
        """When its own certificate ends; none that it signs lasts longer."""
        return self._certificate.not_valid_after_utc

    def issue(
        self,
        name: str,
        *,
        hosts: Sequence[str] = LOOPBACK_NAMES,
        lifetime: timedelta = LIFETIME,
        now: datetime | None = None,
    ) -> Certificate:
        """A new certificate for servers on these hosts and for clients that are called `name`.

        It replaces an older one of that name.
        """
        now = now or datetime.now(UTC)
        key = ec.generate_private_key(ec.SECP256R1())
        ends = min(now + lifetime, self.expires)
        alternatives = x509.SubjectAlternativeName([_host(host) for host in hosts])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        signed = (
            _unsigned(name, self._certificate.subject, key, min(now, ends) - CLOCK_SKEW, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_authority=False), critical=True)
            .add_extension(usage, critical=False)
            .add_extension(alternatives, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        made = Certificate(
            certificate=self.folder / f"{name}.pem",
            key=self.folder / f"{name}.key",
            keystore=self.folder / f"{name}.keystore.pem",
        )
        private, public = _private(key), signed.public_bytes(serialization.Encoding.PEM)
        write_private(made.key, private)
        made.certificate.write_bytes(public)
        write_private(made.keystore, private + public)
        return made


def make_authority(
    folder: Path, name: str = "Baton local stack", *, now: datetime | None = None
) -> Authority:
    """A new authority in the folder, with a new key."""
    now = now or datetime.now(UTC)
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    certificate = (
        _unsigned(name, subject, key, now - CLOCK_SKEW, now + AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_private(folder / "ca.key", _private(key))
    (folder / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return Authority(folder)


def ensure_authority(folder: Path, *, now: datetime | None = None) -> Authority:
    """The folder's authority, or a new one if there is none that outlives a certificate issued now."""
    now = now or datetime.now(UTC)
    if (folder / "ca.pem").exists() and (folder / "ca.key").exists():
        authority = Authority(folder)
        if authority.expires >= now + LIFETIME:
            return authority
    return make_authority(folder, now=now)


def _unsigned(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, starts: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
