"""Where Kafka is, and what a client shows to be let in: one value that every client gets.

Secrets are files, of which this value has only the paths: it may be logged, printed and sent to a job. Used
by the settings of services, the command line and the Spark jobs; `security.py` connects with it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TypeAlias

from shared.secret_file import SecretFile

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
BY_TOKEN = "OAUTHBEARER"
"""The one mechanism that takes a token instead of a user and a password."""
_VARIABLE = "BATON_KAFKA"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAccess:
    """`bootstrap`: "host:port,…". The names are Kafka's own, except that secrets are in files.

    `ca_file`: PEM of the authorities that sign brokers' certificates; "": those of the system. `key_file` may
    be empty if the key is in `certificate_file`. `password_file` and `token_file` hold one secret, or two
    while they are rotated: the first that Kafka accepts counts.
    """

    bootstrap: str
    security_protocol: str = "PLAINTEXT"
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    sasl_mechanism: str = ""
    user: str = ""
    password_file: str = ""
    token_file: str = ""

    @property
    def is_given(self) -> bool:
        """Whether anything but the address is set."""
        return self != KafkaAccess(bootstrap=self.bootstrap)

    @property
    def variables(self) -> dict[str, str]:
        """The variables that say this."""
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "bootstrap"}
        named = {f"{_VARIABLE}_{name.upper()}": value for name, value in given.items() if value}
        return {_VARIABLE: self.bootstrap, **named}

    @property
    def is_encrypted(self) -> bool:
        """Whether connections use TLS."""
        return self.security_protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether a client shows a password or a token."""
        return self.security_protocol.startswith("SASL")

    @property
    def secret_file(self) -> str:
        """The file with the password or the token."""
        return self.token_file if self.sasl_mechanism == BY_TOKEN else self.password_file

    def secret_in(self, file: str) -> SecretFile:
        """The passwords or tokens in that file."""
        name = "PASSWORD_FILE" if file == self.password_file else "TOKEN_FILE"
        return SecretFile(file, f"{_VARIABLE}_{name}")

    def faults(self) -> list[str]:
        """A sentence for each combination that cannot work, and each file that cannot be read."""
        files = {
            "CA_FILE": self.ca_file,
            "CERTIFICATE_FILE": self.certificate_file,
            "KEY_FILE": self.key_file,
        }
        found = [
            f"{_VARIABLE}_{name}={path}: the file cannot be read"
            for name, path in files.items()
            if path and not (os.path.isfile(path) and os.access(path, os.R_OK))
        ]
        for file in (self.password_file, self.token_file):
            found += self.secret_in(file).faults() if file else []
        protocol = f"{_VARIABLE}_SECURITY_PROTOCOL={self.security_protocol}"
        if self.security_protocol not in PROTOCOLS:
            return [*found, f"{protocol}: must be one of {', '.join(PROTOCOLS)}"]
        if not self.is_encrypted:
            found += [
                f"{_VARIABLE}_{name} has no effect with {protocol}"
                for name in ("CA_FILE", "CERTIFICATE_FILE", "KEY_FILE")
                if files[name]
            ]
        if self.key_file and not self.certificate_file:
            found.append(f"{_VARIABLE}_KEY_FILE needs {_VARIABLE}_CERTIFICATE_FILE")
        return found + self._sasl_faults(protocol)

    def remarks(self) -> list[str]:
        """What an operator should know about this access, although it works."""
        if self.security_protocol == "SASL_PLAINTEXT":
            shown = {"PLAIN": "the password", BY_TOKEN: "the token"}.get(self.sasl_mechanism, "")
            what = f"{shown} and all data are" if shown else "all data is"
            return [f"{_VARIABLE}_SECURITY_PROTOCOL=SASL_PLAINTEXT: {what} readable on the way to Kafka"]
        return []

    def _sasl_faults(self, protocol: str) -> list[str]:
        given = {
            "SASL_MECHANISM": self.sasl_mechanism,
            "USER": self.user,
            "PASSWORD_FILE": self.password_file,
            "TOKEN_FILE": self.token_file,
        }
        if not self.has_sasl:
            return [f"{_VARIABLE}_{name} has no effect with {protocol}" for name in given if given[name]]
        if not self.sasl_mechanism:
            return [f"{protocol} needs {_VARIABLE}_SASL_MECHANISM"]
        needed = {"TOKEN_FILE"} if self.sasl_mechanism == BY_TOKEN else {"USER", "PASSWORD_FILE"}
        mechanism = f"{_VARIABLE}_SASL_MECHANISM={self.sasl_mechanism}"
        if self.sasl_mechanism not in MECHANISMS:
            return [f"{mechanism}: must be one of {', '.join(MECHANISMS)}"]
        missing = [name for name in given if name in needed and not given[name]]
        unused = [name for name in given if name not in needed | {"SASL_MECHANISM"} and given[name]]
        return [
            *(f"{mechanism} needs {_VARIABLE}_{name}" for name in missing),
            *(f"{_VARIABLE}_{name} has no effect with {mechanism}" for name in unused),
        ]


Kafka: TypeAlias = KafkaAccess | str
"""How to reach Kafka; a string is `bootstrap` alone, of brokers that demand nothing."""


def access_of(kafka: Kafka) -> KafkaAccess:
    """The access; that of open brokers for a string."""
    return KafkaAccess(bootstrap=kafka) if isinstance(kafka, str) else kafka


def addresses_of(bootstrap: str) -> list[tuple[str, int]]:
    """Host and port of each server.

    >>> addresses_of("a:1, [::1]:2")
    [('a', 1), ('::1', 2)]
    """
    split = (one.strip().rpartition(":") for one in bootstrap.split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in split]


def access_from(environment: Mapping[str, str], bootstrap: str) -> KafkaAccess:
    """The access to these brokers with what the variables `BATON_KAFKA_…` say."""
    given = {
        field.name: value
        for field in fields(KafkaAccess)
        if (value := environment.get(f"{_VARIABLE}_{field.name.upper()}"))
    }
    return KafkaAccess(bootstrap=bootstrap, **given)
