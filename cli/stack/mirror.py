"""Runs MirrorMaker 2 in place of this process: Kafka's jars and those of the use `mirror`, one properties
file.

Used by `baton mirror run` and the tests. It needs no network: the jars come by `baton jars --with mirror`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cli.kafka.mirror.config import PASSWORDS
from cli.stack.faults import JarsUnavailable
from cli.stack.jars.downloads import is_sound
from cli.stack.jars.java import find_java
from cli.stack.jars.lock import Use, class_path, jar_folder, read_lock
from cli.stack.servers.servers import kafka_logging
from shared.kafka.connect.access import BY_TOKEN, KafkaAccess
from shared.kafka.connect.security import usable_secrets

USES: tuple[Use, ...] = ("kafka", "mirror")
MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
HEAP_MB = 512
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


def missing_jars() -> list[str]:
    """The files that MirrorMaker needs and that are not in the cache, or are damaged."""
    return [jar.file for use in USES for jar in read_lock(use) if not is_sound(jar, jar_folder(use))]


def mirror_argv(config: Path, access: KafkaAccess, *, log_level: str = "warn") -> list[str]:
    """The command line of MirrorMaker. Raises JavaMissing, JarsUnavailable."""
    if missing := missing_jars():
        raise JarsUnavailable(
            f"{len(missing)} of MirrorMaker's jars are missing: run `baton jars --with mirror`"
        )
    path = os.pathsep.join(class_path(jar_folder(use), read_lock(use)) for use in USES)
    token = [f"-D{_ALLOWED_URLS}=file://{access.token_file}"] if access.sasl_mechanism == BY_TOKEN else []
    return [
        *(find_java(), f"-Xmx{HEAP_MB}m", "-XX:TieredStopAtLevel=1", *token),
        *(*kafka_logging(log_level), "-cp", path, MAIN, str(config)),
    ]


def with_passwords(environment: Mapping[str, str], access: KafkaAccess) -> dict[str, str]:
    """The environment with the passwords that the properties name, unless it has them. Raises KafkaDenied."""
    if not access.password_file:
        return dict(environment)
    secret = usable_secrets(access, access.secret_in(access.password_file))[0]
    # it is put between quotes, in the syntax of Java's login modules
    quoted = secret.replace("\\", "\\\\").replace('"', '\\"')
    return dict.fromkeys(PASSWORDS.values(), quoted) | dict(environment)
