"""Control's settings: where runs and tables live, how to reach Spark, how often to read the cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from shared.service.service_settings import ServiceSettings
from shared.service.settings import between, setting

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings(ServiceSettings):
    """Read from `BATON_…` variables."""

    hosts: str = setting(
        "",
        "names under which control is reached besides loopback names, IP addresses and its own address, "
        "`name,…`: of a container, a service, a proxy; a request with another name in its `Host` gets 421",
    )
    refresh_s: float = setting(
        0.5,
        "pause between two readings of ZooKeeper, Kafka and the members",
        between(0.05, 60, "shorter costs the cluster more, longer shows older numbers"),
    )
    status_window_s: float = setting(
        20.0,
        "span of a stream's history that decides its status (OK, WARN, STOP, STALL, REWIND)",
        between(1, 3600, "shorter calls a pause a stop"),
    )
    operation_timeout_s: float = setting(
        120.0,
        "how long an operation (move, drain, rebalance) may take before it counts as failed",
        between(
            1,
            86_400,
            "shorter reports a drain as failed while it goes on, longer blocks others on the same stream",
        ),
    )
    runs: str = setting(".baton/runs", "folder with one folder per run of a job")
    runs_kept: int = setting(
        200,
        "ended runs to keep; older ones and their folders are removed",
        between(1, 100_000, "control reads the folders of all runs when it starts"),
    )
    lake: str = setting(".baton/lake", "folder or URL (`s3a://…`) under which the Delta tables live")
    jars: str = setting("", "folder with Spark's jars; empty: where `baton jars` keeps them")
    spark_master: str = setting(
        "", "Spark master of the jobs; empty: `SPARK_MASTER`, and without that `local[2]`"
    )
    run_timeout_s: float = setting(
        3600.0,
        "longest time that a run may take; a run may set a shorter limit",
        between(1, 7 * 86_400, "longer lets a hanging run block its job"),
    )

    def check(self) -> list[str]:
        """Faults of settings that are valid on their own."""
        faults = ServiceSettings.check(self)
        for name in _names_in(self.hosts):
            if not _NAME.fullmatch(name):
                faults.append(
                    f"BATON_HOSTS: {name!r} is not a host name (neither scheme nor port belong here)"
                )
        return faults


def own_hosts_for(settings: ControlSettings) -> list[str]:
    """The names under which control is reached: the listed ones, and those of its own address."""
    own = (settings.host, urlsplit(settings.address).hostname or "")
    return [name for name in (*own, *_names_in(settings.hosts)) if name]


def _names_in(hosts: str) -> list[str]:
    return [name for part in hosts.split(",") if (name := part.strip())]


def spark_master_for(settings: ControlSettings, environment: Mapping[str, str]) -> str:
    """Spark's master: the setting, else `SPARK_MASTER`, else two local threads."""
    return settings.spark_master or environment.get("SPARK_MASTER") or "local[2]"


def spark_jars_for(settings: ControlSettings, environment: Mapping[str, str]) -> Path:
    """The folder of Spark's jars: the setting, else the cache that `baton jars` fills."""
    if settings.jars:
        return Path(settings.jars).absolute()
    cache = environment.get("BATON_CACHE")
    if not cache:
        base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        cache = f"{base}/baton"
    return Path(cache).absolute() / "jars" / "spark"


def lake_for(settings: ControlSettings) -> str:
    """Where the tables live, in Spark's form: a URL unchanged, a folder as an absolute path."""
    return settings.lake if "://" in settings.lake else str(Path(settings.lake).absolute())
