"""The configuration of MirrorMaker 2, which copies a Baton's topics to another cluster under the same names.

Pure. `baton mirror config` prints it; docs/mirror.md says what is promised, and which lines may be changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from shared.kafka.admin.topics import MAX_RECORD_BYTES
from shared.kafka.connect.access import BY_TOKEN, KafkaAccess
from shared.model.names import Names

SOURCE, TARGET = "source", "target"
"""What the configuration calls the clusters; MirrorMaker's own topics and groups at the target bear it."""
WORKERS = f"{SOURCE}-mm2"
"""The Kafka group at the target whose members are the processes of MirrorMaker."""
PASSWORDS = {SOURCE: "MIRROR_SOURCE_PASSWORD", TARGET: "MIRROR_TARGET_PASSWORD"}
"""The variables from which MirrorMaker takes the passwords; `baton mirror run` sets those that are not
set."""
KEPT_HERE = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "message.timestamp.difference.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.type",
    "unclean.leader.election.enable",
    "min.insync.replicas",
)
"""Settings of topics that are not copied. With the source's `message.timestamp.type`, the copies would bear
the times at which they were copied."""
REFRESH_S = 30
"""How soon new topics, groups and changed settings are copied."""
MARGIN_BYTES = 64 * 1024
"""Around the largest record, in a request."""
_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    """What an operator chooses. `replication`: of the topics at the target. `same_offsets`: no transactions,
    which take offsets of their own; a copy that MirrorMaker was killed over may hold records twice.
    """

    source: KafkaAccess
    target: KafkaAccess
    names: Names
    replication: int = 3
    same_offsets: bool = False
    tasks: int = 2


def mirror_config(options: MirrorOptions) -> str:
    """The text of the properties file; without secrets.

    >>> access = KafkaAccess(bootstrap="a:1")
    >>> text = mirror_config(MirrorOptions(source=access, target=access, names=Names("x")))
    >>> [line for line in text.splitlines() if line.startswith("topics=")]
    ['topics=x\\\\\\\\.fragments\\\\\\\\..*,x\\\\\\\\.sessions,x\\\\\\\\.sessions\\\\\\\\..*']
    """
    sections = [
        ("Made by `baton mirror config`; start it with `baton mirror run FILE`.", _clusters(options)),
        ("What is copied, and how it is called there.", _topics(options)),
        ("Each record once, in order, with its time.", _delivery(options)),
        (
            "Places of other readers; not of Baton's own groups, whose state names the source's offsets.",
            _groups(),
        ),
        ("MirrorMaker's own topics.", _own_topics(options)),
    ]
    return "\n".join(f"# {title}\n{_lines(settings)}" for title, settings in sections)


def _clusters(options: MirrorOptions) -> dict[str, object]:
    found: dict[str, object] = {"clusters": f"{SOURCE},{TARGET}"}
    has_secret = False
    for alias, access in ((SOURCE, options.source), (TARGET, options.target)):
        locks = client_settings(access, f"${{env:{PASSWORDS[alias]}}}")
        has_secret = has_secret or (access.has_sasl and access.sasl_mechanism != BY_TOKEN)
        found |= {f"{alias}.{name}": value for name, value in locks.items()}
    if has_secret:
        found["config.providers"] = "env"
        found["config.providers.env.class"] = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    return found | {
        f"{SOURCE}->{TARGET}.enabled": "true",
        f"{TARGET}->{SOURCE}.enabled": "false",
        "tasks.max": options.tasks,
        # several processes share the work; each listens on loopback for the others unless this is changed
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": "http://127.0.0.1:0",
        # all its jars say what is in them; to look for itself takes Java many seconds
        f"{SOURCE}.plugin.discovery": "service_load",
        f"{TARGET}.plugin.discovery": "service_load",
    }


def _topics(options: MirrorOptions) -> dict[str, object]:
    names = options.names
    fragments, sessions = re.escape(names.topic("fragments.")), re.escape(names.topic("sessions"))
    return {
        "topics": f"{fragments}.*,{sessions},{sessions}\\..*",
        "topics.exclude": "",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "replication.factor": options.replication,
        "refresh.topics.interval.seconds": REFRESH_S,
        "sync.topic.configs.enabled": "true",
        "sync.topic.configs.interval.seconds": REFRESH_S,
        "config.properties.exclude": ",".join(re.escape(name) for name in KEPT_HERE),
        # rights at the target are the operator's
        "sync.topic.acls.enabled": "false",
    }


def _delivery(options: MirrorOptions) -> dict[str, object]:
    largest = MAX_RECORD_BYTES + MARGIN_BYTES
    return {
        f"{TARGET}.exactly.once.source.support": "disabled" if options.same_offsets else "enabled",
        f"{SOURCE}.consumer.isolation.level": "read_committed",
        f"{SOURCE}.consumer.auto.offset.reset": "earliest",
        f"{TARGET}.producer.acks": "all",
        f"{TARGET}.producer.enable.idempotence": "true",
        f"{TARGET}.producer.max.request.size": largest,
        "offset.flush.interval.ms": 5_000,
    }


def _groups() -> dict[str, object]:
    return {
        "groups": ".*",
        "groups.exclude": r"(.*\.)?baton\..*,console-consumer-.*,connect-.*,.*-mm2,__.*",
        "sync.group.offsets.enabled": "true",
        "refresh.groups.interval.seconds": REFRESH_S,
        "emit.checkpoints.interval.seconds": REFRESH_S,
        "sync.group.offsets.interval.seconds": REFRESH_S,
    }


def _own_topics(options: MirrorOptions) -> dict[str, object]:
    kinds = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic")
    stores = ("offset.storage", "status.storage", "config.storage")
    return {
        # the source may have rights to read alone
        "offset-syncs.topic.location": TARGET,
        "emit.heartbeats.enabled": "false",
        **{f"{one}.replication.factor": options.replication for one in (*kinds, *stores)},
    }


def client_settings(access: KafkaAccess, secret: str) -> dict[str, object]:
    """How Kafka's Java clients reach these brokers; `secret` stands for the password."""
    found: dict[str, object] = {"bootstrap.servers": access.bootstrap}
    if access.security_protocol != "PLAINTEXT":
        found["security.protocol"] = access.security_protocol
    if access.ca_file:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": access.ca_file}
    if access.certificate_file:
        # Java wants certificate and key (PKCS #8) in one file
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": access.certificate_file}
    if access.has_sasl:
        found["sasl.mechanism"] = access.sasl_mechanism
        found |= _login(access, secret)
    return found


def _login(access: KafkaAccess, secret: str) -> dict[str, object]:
    if access.sasl_mechanism == BY_TOKEN:
        return {
            "sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.oauthbearer.token.endpoint.url": f"file://{access.token_file}",
            "sasl.login.callback.handler.class": f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
        }
    module = "plain.PlainLoginModule" if access.sasl_mechanism == "PLAIN" else "scram.ScramLoginModule"
    user = access.user.replace("\\", "\\\\").replace('"', '\\"')
    return {"sasl.jaas.config": f'{_MODULES}.{module} required username="{user}" password="{secret}";'}


def _lines(settings: Mapping[str, object]) -> str:
    # a backslash of a pattern is escaped once more for the properties file
    return "".join(f"{name}={value}\n".replace("\\", "\\\\") for name, value in settings.items())
