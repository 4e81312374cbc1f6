"""Every `BATON_…` variable that some part of Baton reads; and which variables of an environment are misspelt.

A misspelt variable has no effect, so every process reports it at its start. Processes share environments (a
shell, `baton.env`), and services do not import each other: hence one table for all. A test compares it with
the declared settings.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

KNOWN = frozenset(
    {
        "BATON_ACCEPTED_SECRET",
        "BATON_ACK_TIMEOUT_S",
        "BATON_ADVERTISE",
        "BATON_ALLOWED_ORIGINS",
        "BATON_CACHE",
        "BATON_COMMITS_PER_S",
        "BATON_COMMIT_S",
        "BATON_COMPRESSION",
        "BATON_CONSUMERS",
        "BATON_CONTROL_OPEN",
        "BATON_CONTROL_TOKENS_FILE",
        "BATON_DELIVERY",
        "BATON_FRESHNESS_S",
        "BATON_FUTURE_MS",
        "BATON_GAP_MS",
        "BATON_GRACE_S",
        "BATON_GROUP",
        "BATON_HEADER_TIMEOUT_S",
        "BATON_HOME",
        "BATON_HOST",
        "BATON_HOSTS",
        "BATON_IDLE_MS",
        "BATON_JARS",
        "BATON_KAFKA",
        "BATON_KAFKA_CA_FILE",
        "BATON_KAFKA_CERTIFICATE_FILE",
        "BATON_KAFKA_KEY_FILE",
        "BATON_KAFKA_PASSWORD_FILE",
        "BATON_KAFKA_SASL_MECHANISM",
        "BATON_KAFKA_SECURITY_PROTOCOL",
        "BATON_KAFKA_TOKEN_FILE",
        "BATON_KAFKA_USER",
        "BATON_LAKE",
        "BATON_LAKE_SHARED",
        "BATON_LATENESS_MS",
        "BATON_LOG_LEVEL",
        "BATON_MAX_BATCH_BYTES",
        "BATON_MAX_CONNECTIONS",
        "BATON_MAX_FRAGMENT_BYTES",
        "BATON_MAX_HANDOVER_BYTES",
        "BATON_MAX_ANSWER_BYTES",
        "BATON_MAX_CACHE_BYTES",
        "BATON_MAX_INFLIGHT_BYTES",
        "BATON_MAX_REPLAY_BYTES",
        "BATON_MAX_REPLAY_FRAGMENTS",
        "BATON_MAX_REQUEST_BYTES",
        "BATON_MAX_REQUEST_FRAGMENTS",
        "BATON_MAX_SESSION_BYTES",
        "BATON_MAX_SESSION_FRAGMENTS",
        "BATON_MAX_SESSION_SPAN_MS",
        "BATON_MEMBER",
        "BATON_MOVES_AT_ONCE",
        "BATON_NAMESPACE",
        "BATON_OPERATION_TIMEOUT_S",
        "BATON_PORT",
        "BATON_PORT_OFFSET",
        "BATON_PRIVATE_HOST",
        "BATON_PRIVATE_PORT",
        "BATON_PRODUCER",
        "BATON_PRODUCER_URL",
        "BATON_PROXIES",
        "BATON_QUEUE_KEY",
        "BATON_QUEUE_KEYS_FILE",
        "BATON_QUEUE_KEY_FILE",
        "BATON_QUEUE_URL",
        "BATON_READ_ONLY",
        "BATON_READ_TIMEOUT_S",
        "BATON_REFRESH_S",
        "BATON_REJECT_SHARE_BYTES",
        "BATON_RELEASE_S",
        "BATON_REPEAT_MS",
        "BATON_REPLICATION",
        "BATON_REST_S",
        "BATON_RETENTION_MS",
        "BATON_ROOT_PATH",
        "BATON_RUNS",
        "BATON_RUNS_AT_STOP",
        "BATON_RUNS_KEPT",
        "BATON_RUNS_KEPT_DAYS",
        "BATON_RUN_LOCK_S",
        "BATON_RUN_TIMEOUT_S",
        "BATON_SCHEDULES",
        "BATON_SCHEDULE_RETRIES",
        "BATON_SCHEDULE_RETRY_S",
        "BATON_SECRET",
        "BATON_SECRET_FILE",
        "BATON_SESSION_PARTITIONS",
        "BATON_SESSION_RETENTION_MS",
        "BATON_SETTLE_S",
        "BATON_SPARK_DRIVER_HOST",
        "BATON_SPARK_EXECUTOR_CORES",
        "BATON_SPARK_EXECUTOR_MEMORY",
        "BATON_SPARK_IDLE_S",
        "BATON_SPARK_MASTER",
        "BATON_SPARK_OPTIONS",
        "BATON_SPARK_PACK",
        "BATON_SPARK_PYTHON",
        "BATON_SPARK_SECRET_FILE",
        "BATON_SPARK_WORKERS",
        "BATON_STATE",
        "BATON_STATUS_WINDOW_S",
        "BATON_STEADY_S",
        "BATON_STREAMS",
        "BATON_TLS_CA_FILE",
        "BATON_TLS_CERTIFICATE_FILE",
        "BATON_TLS_CLIENT_CA_FILE",
        "BATON_TLS_KEY_FILE",
        "BATON_TOKEN",
        "BATON_TOKEN_FILE",
        "BATON_URL",
        "BATON_WRITE_KEY",
        "BATON_WRITE_KEYS",
        "BATON_WRITE_KEYS_FILE",
        "BATON_ZOOKEEPER",
        "BATON_ZOOKEEPER_ACL",
        "BATON_ZOOKEEPER_PASSWORD_FILE",
        "BATON_ZOOKEEPER_TIMEOUT_S",
        "BATON_ZOOKEEPER_USER",
    }
)
GONE = {"BATON_WORKERS": "start several producers"}
"""What to do in place of a setting that there was."""
_PREFIX = "BATON_"
_OF_TESTS = "BATON_TEST_"
"""Tests hand such variables to the processes that they start."""
_LEAST_RATIO = 0.7
"""`STREAM` and `STREAMS` have 0.92, `LAKE` and `LATE` 0.75, words that have nothing in common about 0.5."""


def misspelt(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that nothing reads, with what to use in its place if that is known."""
    unknown = (name for name in environment if name.startswith(_PREFIX) and not name.startswith(_OF_TESTS))
    return [f"{name} is not a setting{_hint(name)}" for name in sorted(unknown) if name not in KNOWN]


def _hint(name: str) -> str:
    if name in GONE:
        return f" any more: {GONE[name]}"
    # without the prefix, which makes every name similar
    own = {known.removeprefix(_PREFIX): known for known in KNOWN}
    near = difflib.get_close_matches(name.removeprefix(_PREFIX).upper(), own, n=1, cutoff=_LEAST_RATIO)
    return f"; did you mean {own[near[0]]}?" if near else ""
