"""Control's settings: whom it serves, where runs and tables live, how to reach Spark, how often it reads."""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.control.core.runs.jobs import JOBS
from services.control.core.runs.schedules import SchedulesInvalid, parse_schedules
from shared.errors import InvalidInput
from shared.secret_file import SecretFile
from shared.service.loopback import is_loopback
from shared.service.service_settings import ServiceSettings
from shared.service.settings import between, one_of, setting

KEEP, END = "keep", "end"
OWN_OPTIONS = frozenset(
    {
        *("spark.master", "spark.app.name", "spark.jars", "spark.archives", "spark.local.dir"),
        *("spark.sql.extensions", "spark.sql.catalog.spark_catalog", "spark.sql.session.timeZone"),
        *("spark.executorEnv.PYTHONPATH", "spark.ui.port", "spark.ui.enabled", "spark.log.level"),
    }
)
"""Spark options that Baton sets itself: the jobs depend on them, or there is a setting for them."""
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_CONSOLE = "/console"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings(ServiceSettings):
    """Read from `BATON_…` variables."""

    root_path: str = setting(
        "",
        "path at which a proxy offers control, like `/baton`; the proxy may pass it on or remove it; empty: "
        "control has a host name of its own",
    )
    proxies: str = setting(
        "",
        "addresses and networks of proxies in front of control, `address,…`: their `X-Forwarded-For` and "
        "`X-Forwarded-Proto` are believed; empty: nobody's are",
    )
    control_tokens_file: str = setting(
        "",
        "file with the tokens of control's callers, `TOKEN ROLE name=NAME` in a line (`#` comments), with "
        "the roles `view`, `operate` and `admin`; reread when it changes; empty: control serves its own "
        "machine alone, and everybody there may do everything",
    )
    control_open: str = setting(
        "0", "1: without BATON_CONTROL_TOKENS_FILE, control serves everybody who reaches it", one_of("0", "1")
    )
    read_only: str = setting(
        "0", "1: control refuses every request that acts; schedules go on", one_of("0", "1")
    )
    queue_url: str = setting(
        "", "base URLs of queue workers, `http://host:port,…`; control asks the first that it reaches"
    )
    queue_key_file: str = setting(
        "", "file with control's key for queue workers, of the scope `manage`; reread when it changes"
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
        "how long an operation (move, drain, pause, …) may take before it counts as failed",
        between(
            1,
            86_400,
            "shorter reports a drain as failed while it goes on, longer blocks others on the same stream",
        ),
    )
    runs: str = setting(".baton/runs", "folder with one folder per run of a job")
    schedules: str = setting(
        "",
        "jobs to run on a schedule, like `lake,reports every 15m; audit every 6h; lake every 1h in fraud`; "
        "each job of a chain starts when the one before it has succeeded; "
        "parameters like `reports(zone=Europe/Berlin report='a b')`",
    )
    schedule_retries: int = setting(
        2,
        "how often a failed scheduled run is retried before the next round is due",
        between(0, 100, "more only repeats the same failure"),
    )
    schedule_retry_s: float = setting(
        60.0,
        "pause before a failed scheduled run is retried; doubles each time",
        between(1, 86_400, "shorter starts Spark again and again, longer is overtaken by the next round"),
    )
    freshness_s: float = setting(
        15.0,
        "pause between two measurements of how far the lake is behind the sessions topics",
        between(0.1, 3600, "shorter costs Kafka more, longer shows older numbers"),
    )
    runs_kept: int = setting(
        200,
        "ended runs to keep; older ones and their folders are removed",
        between(1, 100_000, "control reads the folders of all runs when it starts"),
    )
    runs_kept_days: float = setting(
        30.0,
        "longest time that ended runs are kept; the latest runs of each schedule always stay",
        between(0.001, 3650, "longer lets their logs fill the disk"),
    )
    lake: str = setting(".baton/lake", "folder or URL (`s3a://…`) under which the Delta tables live")
    jars: str = setting(
        "", "folders with Spark's jars, separated by `:`; empty: where `baton jars` keeps them"
    )
    spark_master: str = setting(
        "", "Spark master of the jobs; empty: `SPARK_MASTER`, and without that `local[2]`"
    )
    lake_shared: str = setting(
        "0",
        "1: all machines of the cluster share the file system of the folder BATON_LAKE; 0: only Spark on "
        "this machine may use a folder",
        one_of("0", "1"),
    )
    spark_driver_host: str = setting(
        "", "name or address at which a cluster's executors reach this machine; empty: Spark finds one"
    )
    spark_python: str = setting(
        "python3", "Python on the machines of a cluster; it must have the same minor version as control's"
    )
    spark_pack: str = setting(
        "",
        "archive with code and packages for a cluster's executors, written by `baton spark pack`; "
        "empty: the driver makes one",
    )
    spark_secret_file: str = setting(
        "",
        "file with the secret that the processes of a standalone cluster share; "
        "with it, they reject everybody else and encrypt what they send",
    )
    spark_executor_memory: str = setting("", "heap of each executor of a cluster, like `2g`; empty: Spark's")
    spark_executor_cores: int = setting(
        0,
        "cores of each executor of a cluster; 0: Spark decides",
        between(0, 1024, "no worker has more cores"),
    )
    spark_options: str = setting(
        "", "other Spark options, `spark.name=value …`, with quotes around values that contain spaces"
    )
    spark_idle_s: float = setting(
        120.0,
        "how long a driver waits for another run after a successful one, so that the next run need not start "
        "Spark; 0: it exits at once",
        between(0, 86_400, "longer keeps a JVM in memory"),
    )
    runs_at_stop: str = setting(
        KEEP,
        "what control does with its drivers when it stops: `keep` leaves them to the next control, `end` "
        "ends them",
        one_of(KEEP, END),
    )
    run_lock_s: float = setting(
        20.0,
        "how long a run keeps its lock without word from its driver, whose ZooKeeper session ends then",
        between(
            2, 60, "shorter costs a run its lock on a busy machine; longer lets the run after a dead one wait"
        ),
    )
    run_timeout_s: float = setting(
        3600.0,
        "longest time that a run may take; a run may set a shorter limit",
        between(1, 7 * 86_400, "longer lets a hanging run block its job"),
    )

    @property
    def queue_urls(self) -> list[str]:
        """The base URLs of queue workers, without a slash at their ends."""
        return [url.rstrip("/") for part in self.queue_url.split(",") if (url := part.strip())]

    @property
    def queue_key(self) -> SecretFile | None:
        """The file with the key for queue workers, if one is set."""
        return SecretFile(self.queue_key_file, "BATON_QUEUE_KEY_FILE") if self.queue_key_file else None

    @property
    def believed_proxies(self) -> list[str]:
        """The addresses and networks of BATON_PROXIES."""
        return [proxy for part in self.proxies.split(",") if (proxy := part.strip())]

    @property
    def tokens_file(self) -> Path | None:
        """The file of tokens, if one is set."""
        return Path(self.control_tokens_file) if self.control_tokens_file else None

    def remarks(self) -> list[str]:
        """What an operator should know about these valid settings."""
        remarks = ServiceSettings.remarks(self)
        if self.tokens_file is None and self.control_open == "1":
            remarks.append(
                "BATON_CONTROL_OPEN=1: everybody who reaches control may do everything, because it has no "
                "tokens (BATON_CONTROL_TOKENS_FILE)"
            )
        elif self.tokens_file is None and not is_loopback(self.host):
            remarks.append(
                f"BATON_HOST={self.host}: control has no tokens (BATON_CONTROL_TOKENS_FILE), so it refuses "
                "everybody on other machines"
            )
        return remarks

    def check(self) -> list[str]:
        """Faults of settings that are valid on their own."""
        faults = ServiceSettings.check(self)
        if self.root_path and (not _PATH.fullmatch(self.root_path) or self.root_path == _CONSOLE):
            faults.append(
                f"BATON_ROOT_PATH: {self.root_path!r} is not a path like /baton, without a slash at its end, "
                f"and other than {_CONSOLE}, which is control's own"
            )
        for proxy in self.believed_proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError:
                faults.append(f"BATON_PROXIES: {proxy!r} is neither an address nor a network like 10.0.0.0/8")
        for url in self.queue_urls:
            if not re.match("https?://[^/]", url):
                faults.append(f"BATON_QUEUE_URL: {url!r} is not a URL like http://host:8002")
        faults += self.queue_key.faults() if self.queue_key else []
        return [*faults, *_faults_of_options(self.spark_options), *_faults_of_schedules(self.schedules)]


def spark_master_for(settings: ControlSettings, environment: Mapping[str, str]) -> str:
    """Spark's master: the setting, else `SPARK_MASTER`, else two local threads."""
    return settings.spark_master or environment.get("SPARK_MASTER") or "local[2]"


def cluster_options_for(settings: ControlSettings) -> dict[str, str]:
    """The options that users set for Spark: the executors' sizes, and those of `spark_options`."""
    sizes = {
        "spark.executor.memory": settings.spark_executor_memory,
        "spark.executor.cores": str(settings.spark_executor_cores or ""),
    }
    return {name: value for name, value in sizes.items() if value} | parse_options(settings.spark_options)


def parse_options(text: str) -> dict[str, str]:
    """Options by name. Raises ValueError.

    >>> parse_options("spark.x=1 spark.y='a b'")
    {'spark.x': '1', 'spark.y': 'a b'}
    """
    options = {}
    for word in shlex.split(text):
        name, equals, value = word.partition("=")
        if not equals or not name.startswith("spark."):
            raise ValueError(f"{word!r} is not spark.name=value")
        if name in OWN_OPTIONS:
            raise ValueError(f"Baton sets {name} itself")
        options[name] = value
    return options


def _faults_of_options(text: str) -> list[str]:
    try:
        parse_options(text)
    except ValueError as error:
        return [f"BATON_SPARK_OPTIONS: {error}"]
    return []


def _faults_of_schedules(text: str) -> list[str]:
    try:
        parse_schedules(text, JOBS)
    except SchedulesInvalid as error:
        return [f"BATON_SCHEDULES: {fault}" for fault in error.faults]
    return []


def spark_jars_for(settings: ControlSettings, environment: Mapping[str, str]) -> str:
    """The folders of Spark's jars, separated by `:`: the setting, else the cache that `baton jars` fills."""
    if settings.jars:
        return os.pathsep.join(str(Path(folder).absolute()) for folder in settings.jars.split(os.pathsep))
    cache = environment.get("BATON_CACHE")
    if not cache:
        base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        cache = f"{base}/baton"
    uses = ("spark", "s3") if settings.lake.startswith("s3a://") else ("spark",)
    return os.pathsep.join(str(Path(cache).absolute() / "jars" / use) for use in uses)


def lake_for(settings: ControlSettings, environment: Mapping[str, str]) -> str:
    """Where the tables live, in Spark's form: a URL unchanged, a folder as an absolute path.

    Raises InvalidInput for a folder that executors would not see.
    """
    if "://" in settings.lake:
        return settings.lake
    master = spark_master_for(settings, environment)
    if settings.lake_shared == "0" and not is_on_this_machine(master):
        raise InvalidInput(
            f"BATON_LAKE={settings.lake} is a folder of this machine, but the jobs run on {master}: set it "
            "to a URL that all machines reach, or set BATON_LAKE_SHARED=1 if they share the folder"
        )
    return str(Path(settings.lake).absolute())


def is_on_this_machine(master: str) -> bool:
    """Whether Spark runs on this machine only.

    >>> [is_on_this_machine(master) for master in ("local[2]", "spark://127.0.0.1:7077", "yarn")]
    [True, True, False]
    """
    host = master.removeprefix("spark://").rpartition(":")[0]
    return master.startswith("local") or is_loopback(host)
