"""How to be let in by Kafka: what cannot work together, files that are read anew, what is never shown."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from cli.stack.secured.certificates import make_authority
from shared.errors import KafkaDenied, SettingsInvalid
from shared.kafka.connect.access import KafkaAccess, access_from
from shared.kafka.connect.sasl import SaslAuthenticateRequest
from shared.kafka.connect.security import tls_context, usable_secrets
from shared.service.service_settings import ServiceSettings
from shared.service.settings import describe, load

SECRET = "a file with one secret"
SCRAM = {
    "BATON_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "BATON_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
    "BATON_KAFKA_USER": "member",
    "BATON_KAFKA_PASSWORD_FILE": SECRET,
}
TOKEN = {
    "BATON_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "BATON_KAFKA_SASL_MECHANISM": "OAUTHBEARER",
    "BATON_KAFKA_TOKEN_FILE": SECRET,
}


@pytest.mark.parametrize(
    ("variables", "faults"),
    [
        (SCRAM, []),
        (TOKEN, []),
        ({"BATON_KAFKA_SECURITY_PROTOCOL": "SSL", "BATON_KAFKA_CA_FILE": __file__}, []),
        ({"BATON_KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}, ["SASL_MECHANISM"]),
        ({**SCRAM, "BATON_KAFKA_USER": ""}, ["needs BATON_KAFKA_USER"]),
        ({**SCRAM, "BATON_KAFKA_PASSWORD_FILE": ""}, ["needs BATON_KAFKA_PASSWORD_FILE"]),
        ({**SCRAM, "BATON_KAFKA_PASSWORD_FILE": "/none"}, ["PASSWORD_FILE=/none: No such file"]),
        ({**SCRAM, "BATON_KAFKA_TOKEN_FILE": SECRET}, ["TOKEN_FILE has no effect"]),
        ({**TOKEN, "BATON_KAFKA_USER": "member"}, ["USER has no effect"]),
        ({**TOKEN, "BATON_KAFKA_TOKEN_FILE": ""}, ["needs BATON_KAFKA_TOKEN_FILE"]),
        # what is meant to protect must not be ignored
        ({"BATON_KAFKA_CA_FILE": __file__}, ["CA_FILE has no effect"]),
        ({"BATON_KAFKA_USER": "member"}, ["USER has no effect"]),
        (
            {"BATON_KAFKA_SECURITY_PROTOCOL": "SSL", "BATON_KAFKA_KEY_FILE": __file__},
            ["needs BATON_KAFKA_CERTIFICATE_FILE"],
        ),
        ({"BATON_KAFKA_SECURITY_PROTOCOL": "TLS"}, ["must be one of PLAINTEXT, SSL, SASL_PLAINTEXT"]),
        ({**SCRAM, "BATON_KAFKA_SASL_MECHANISM": "GSSAPI"}, ["must be one of PLAIN, SCRAM-SHA-256"]),
        (
            {**SCRAM, "BATON_KAFKA_PASSWORD_FILE": "/none", "BATON_KAFKA_CA_FILE": "/no.pem"},
            ["/no.pem: the file cannot be read", "PASSWORD_FILE=/none: No such file"],
        ),
    ],
)
def test_a_combination_that_cannot_work_ends_the_start(
    tmp_path: Path, variables: dict[str, str], faults: list[str]
) -> None:
    """Every fault at once; for services and, by the same check, for the command line."""
    (tmp_path / "secret").write_text("one\n")
    variables = {
        name: str(tmp_path / "secret") if value == SECRET else value for name, value in variables.items()
    }
    found: list[str] = []
    try:
        load(ServiceSettings, variables)
    except SettingsInvalid as error:
        found = error.faults

    assert len(found) == len(faults)
    assert all(words in one for words, one in zip(faults, found, strict=True))
    assert bool(access_from(variables, "k:1").faults()) == bool(faults)


def test_services_and_the_command_line_read_the_same_variables(tmp_path: Path) -> None:
    """So a shell that has them set for one may start the other."""
    (tmp_path / "secret").write_text("one\n")
    variables = {**SCRAM, "BATON_KAFKA_PASSWORD_FILE": str(tmp_path / "secret")}
    settings = load(ServiceSettings, {**variables, "BATON_KAFKA": "k:1"})

    assert access_from(variables, "k:1") == settings.kafka_access


@pytest.mark.parametrize(("mechanism", "what"), [("PLAIN", "the password"), ("OAUTHBEARER", "the token")])
def test_a_secret_without_encryption_is_remarked(mechanism: str, what: str) -> None:
    """Anybody on the way can read it."""
    access = KafkaAccess(bootstrap="k:1", security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism)

    assert [what in remark for remark in access.remarks()] == [True]
    assert KafkaAccess(bootstrap="k:1", security_protocol="SASL_SSL").remarks() == []


def test_no_secret_is_shown(tmp_path: Path) -> None:
    """Settings and accesses know only the file; a step of the handshake shows nothing in the debug log."""
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    settings = load(ServiceSettings, {**SCRAM, "BATON_KAFKA_PASSWORD_FILE": str(file)})

    access = settings.kafka_access
    shown: list[Any] = [settings, access, asdict(access), describe(settings)]
    shown.append(SaslAuthenticateRequest(b"\0member\0hunter2"))
    assert "hunter2" not in repr(shown)
    assert usable_secrets(access, access.secret_in(str(file))) == ["hunter2"]


def token(exp: float | None) -> str:
    claims = {"sub": "member"} if exp is None else {"exp": exp}
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}."


@pytest.mark.parametrize(
    ("mechanism", "content", "secrets"),
    [
        ("PLAIN", "one\n", ["one"]),
        ("PLAIN", "one", ["one"]),
        ("PLAIN", "new\nold\n\n", ["new", "old"]),
        ("PLAIN", "\n", "cannot be read"),
        ("PLAIN", None, "cannot be read"),
        ("OAUTHBEARER", " VALID\n", 1),
        ("OAUTHBEARER", "EXPIRED", "has expired"),
        ("OAUTHBEARER", "EXPIRED\nVALID", 1),
        ("OAUTHBEARER", "opaque\nENDLESS", 2),
        ("OAUTHBEARER", "not.a.token", 1),
    ],
)
def test_a_file_holds_one_secret_or_two_during_a_rotation(
    tmp_path: Path, mechanism: str, content: str | None, secrets: Any
) -> None:
    """One a line, in the order in which they are tried; an expired token is not tried."""
    file = tmp_path / "secret"
    now_s = time.time()
    tokens = {"VALID": token(now_s + 60), "EXPIRED": token(now_s - 1), "ENDLESS": token(None)}
    if content is not None:
        for name, text in tokens.items():
            content = content.replace(name, text)
        file.write_text(content)
    access = KafkaAccess(
        bootstrap="k:1", sasl_mechanism=mechanism, password_file=str(file), token_file=str(file)
    )

    if isinstance(secrets, str):
        with pytest.raises(KafkaDenied, match=f"{secrets}.*{file}"):
            usable_secrets(access, access.secret_in(str(file)))
    else:
        found = usable_secrets(access, access.secret_in(str(file)))
        assert found == secrets or len(found) == secrets


def test_tls_reads_its_files_anew_and_names_the_one_that_it_cannot_read(tmp_path: Path) -> None:
    """A key that is encrypted is refused instead of asked for on the terminal."""
    issued = make_authority(tmp_path).issue("member")
    access = KafkaAccess(
        bootstrap="k:1",
        security_protocol="SSL",
        ca_file=str(tmp_path / "ca.pem"),
        certificate_file=str(issued.keystore),
    )
    tls_context(access)

    issued.keystore.write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    with pytest.raises(KafkaDenied, match=f"client's certificate or key cannot be read: {issued.keystore}"):
        tls_context(access)
    (tmp_path / "ca.pem").unlink()
    with pytest.raises(KafkaDenied, match=r"authority's certificate cannot be read: .*ca\.pem"):
        tls_context(access)
