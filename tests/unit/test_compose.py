"""The stack in containers is the local stack: the same commands, servers and settings.

No container engine is needed: these tests check the file against the compose specification and compare it
with what `cli/stack` starts.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

from cli.stack.local.programs import StackProcesses
from cli.stack.options import SERVICES, StackOptions
from cli.stack.servers.servers import KafkaOptions, ZooKeeperOptions, kafka_config, zookeeper_config
from services.consumer.settings import ConsumerSettings
from services.control.settings import ControlSettings, lake_for, spark_jars_for
from shared.service.guard import is_own_host
from shared.service.settings import load, variable_for
from supply_chain.locked import read_packages

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
ROLES = ("service", "cli", "control")
LOCKS = {role: ROOT / "locks" / f"{role}.lock" for role in (*ROLES, "dev")}
COMPOSE: dict[str, Any] = YAML(typ="safe").load(FILE)
SERVERS = ("zookeeper", "kafka")
PINNED = re.compile(r"[a-z0-9/.-]+:v?\d+(\.\d+)+(-[a-z0-9.-]+)?")
FOREIGN = {"SPARK_LOCAL_IP"}
"""Variables in the services' environments that Spark reads, not Baton."""
CACHE = "BATON_CACHE"
"""Where control and the command line look for jars; a service has no setting of its own for it."""
ADDRESSES = {
    *("BATON_KAFKA", "BATON_ZOOKEEPER", "BATON_HOST", "BATON_PORT", "BATON_PRIVATE_PORT"),
    *("BATON_QUEUE_URL", "BATON_HOSTS"),
    "BATON_CONTROL_OPEN",  # to whom it is open depends on where its port is published
}
"""Settings that belong to the network of the containers: `baton.env` cannot change them."""
CLIENT = "cli"
SPARK = {"spark-master": "master.Master", "spark-worker": "worker.Worker"}
"""The services of the profile `spark`, and Spark's own program of each."""
MONITORING = ("prometheus", "grafana")
"""The services of the profile `monitoring`; tests/unit/test_monitoring.py judges what they are given."""
PATHS_AND_ADDRESSES = {
    "log.dirs",
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",  # one listener more, for the host
    "controller.quorum.bootstrap.servers",  # the image formats its storage for a fixed quorum
}
"""Kafka's settings for paths and addresses, which differ in a container."""


def environment_of(service: str) -> dict[str, str]:
    """A service's environment when the shell sets nothing: `${NAME:-default}` becomes its default."""
    declared = COMPOSE["services"][service]["environment"]
    return {name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value)) for name, value in declared.items()}


def variables_in(service: str, baton_env: dict[str, str]) -> dict[str, str]:
    """What a container's process sees: the image's `ENV`, then its two files, then `environment`.

    Later ones win, as in the compose specification. The second file is the service's own, for its secrets.
    """
    declared = COMPOSE["services"][service]
    assert [file["path"] for file in declared["env_file"]] == ["baton.env", f"baton.{service}.env"]
    return {**image_environment(declared["build"]["target"]), **baton_env, **environment_of(service)}


def image_environment(target: str) -> dict[str, str]:
    """The variables that the Dockerfile's stage and the stages below it set."""
    stages = re.findall(r"(?ms)^FROM (\S+) AS (\S+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE)
    (below, text) = next((below, text) for below, name, text in stages if name == target)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    own = dict(pair.split("=", 1) for line in lines if line.startswith("ENV ") for pair in line.split()[1:])
    return {**(image_environment(below) if below in {name for _, name, _ in stages} else {}), **own}


def test_the_file_follows_the_compose_specification() -> None:
    """The specification's published schema accepts it."""
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]

    answer = subprocess.run([*checker, str(FILE)], capture_output=True, text=True, check=False, timeout=60)

    assert answer.returncode == 0, answer.stdout


def test_the_containers_are_the_processes_of_the_local_stack() -> None:
    """ZooKeeper, Kafka, producer, consumer and control; the command line runs only when it is called."""
    started = {name for name, declared in COMPOSE["services"].items() if "profiles" not in declared}

    assert started == {*SERVERS, *SERVICES}
    assert COMPOSE["services"].keys() - started == {CLIENT, *SPARK, *MONITORING}


@pytest.mark.parametrize("service", SPARK)
def test_a_spark_cluster_is_a_profile(service: str) -> None:
    """It runs control's image, which has Spark, at the versions that the driver has; workers see the lake."""
    declared, control = COMPOSE["services"][service], COMPOSE["services"]["control"]
    (master,) = (word for word in COMPOSE["services"]["spark-worker"]["command"] if "://" in word)
    lines = re.findall(r"(?m)^  #   (BATON_\w+)=(\S+)$", (ROOT / "docker-compose.yml").read_text())
    settings = load(ControlSettings, variables_in("control", dict(lines)))

    assert settings.spark_master == master
    assert settings.spark_driver_host in COMPOSE["services"]
    assert (declared["profiles"], declared["image"]) == (["spark"], control["image"])
    assert declared["command"][1] == f"org.apache.spark.deploy.{SPARK[service]}"
    assert lake_for(settings, {}) == "/data/lake"
    assert set(COMPOSE["services"]["spark-worker"]["volumes"]) >= set(control["volumes"])


def test_a_lake_on_an_object_store_needs_only_its_url() -> None:
    """The image has all jars of the lock file that Spark needs there, where control looks for them."""
    environment = variables_in("control", {"BATON_LAKE": "s3a://bucket/lake"})
    (folder,) = re.findall(r"(?m)^COPY --from=jars /cache/jars (\S+)$", DOCKERFILE)
    (fetched,) = re.findall(r"(?m)^RUN BATON_CACHE=/cache .* in \((.+?)\)\]", DOCKERFILE)

    found = spark_jars_for(load(ControlSettings, environment), environment)

    assert found.split(":") == [f"{folder}/{use}" for use in ("spark", "s3")]
    assert fetched == "'spark', 's3'"


@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_in_baton_env_reaches_the_services(service: str) -> None:
    """`environment` would override it silently; only addresses belong there."""
    known = {variable_for(field.name) for field in dataclasses.fields(SERVICES[service])}
    given = dict.fromkeys(known, "given")

    found = variables_in(service, given)

    assert {name for name in known if found[name] != "given"} <= ADDRESSES


def test_the_number_of_streams_can_be_taken_back() -> None:
    """Without a line in `baton.env` the stored table decides, whatever it was before."""
    settings = load(SERVICES["producer"], variables_in("producer", {}))

    assert (settings.streams, settings.namespace) == (None, "")  # type: ignore[attr-defined]


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_starts_with_the_command_of_the_local_stack(service: str) -> None:
    """Only the interpreter's path differs."""
    stack = StackProcesses(StackOptions())
    specs = {"producer": stack.producer, "consumer": lambda: stack.consumer(0), "queue": stack.queue}
    spec = {**specs, "control": stack.control}[service]()

    assert COMPOSE["services"][service]["command"] == ["python", *spec.argv[1:]]


@pytest.mark.parametrize("service", SERVICES)
def test_every_variable_is_a_setting_that_the_service_knows(service: str) -> None:
    """A service ignores a misspelt variable without a word. The values must load, too."""
    known = {variable_for(field.name) for field in dataclasses.fields(SERVICES[service])}
    environment = variables_in(service, {})

    assert {name for name in environment if name.startswith("BATON_")} <= known | {CACHE}
    assert set(environment_of(service)) <= known | FOREIGN
    settings = load(SERVICES[service], environment)
    assert (settings.kafka, settings.zookeeper) == ("kafka:9092", "zookeeper:2181")


def test_control_is_open_to_its_host_until_it_has_tokens() -> None:
    """Nobody in the containers' network is on loopback. The port is published on that of the host alone."""
    settings = load(ControlSettings, variables_in("control", {}))
    ports = COMPOSE["services"]["control"]["ports"]

    assert (settings.control_open, settings.tokens_file) == ("1", None)
    assert ports != []
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert load(ControlSettings, variables_in("control", {"BATON_CONTROL_TOKENS_FILE": "t"})).tokens_file


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_listens_on_its_port_of_the_local_stack(service: str) -> None:
    """All but consumers are published, on loopback: there may be any number of those. What
    strangers do not need of a producer has a port of its own.
    """
    ports = {"control": (8000, []), "producer": (8001, [8003]), "queue": (8002, []), "consumer": (8010, [])}
    port, private = ports[service]
    published = [] if service == "consumer" else [f"127.0.0.1:{one}:{one}" for one in (port, *private)]

    environment = environment_of(service)
    assert environment["BATON_PORT"] == str(port)
    assert [environment[name] for name in ("BATON_PRIVATE_PORT",) if name in environment] == [
        *map(str, private)
    ]
    assert COMPOSE["services"][service].get("ports", []) == published


@pytest.mark.parametrize("service", ["control", "queue", "producer"])
def test_a_service_answers_to_the_name_of_its_container(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other containers reach it by that; it may be the name of its machine too."""
    monkeypatch.setattr("socket.gethostname", lambda: COMPOSE["services"][service].get("hostname", "5f1e9a"))
    settings = load(SERVICES[service], environment_of(service))

    assert is_own_host(f"{service}:8000", settings.own_hosts)


@pytest.mark.parametrize("service", [*SERVERS, *SERVICES, *MONITORING])
def test_every_container_has_a_health_check_and_waits_for_healthy_dependencies(service: str) -> None:
    """`service_healthy` waits forever for a container without a health check."""
    container = COMPOSE["services"][service]

    assert container["healthcheck"]["test"]
    for other, how in container.get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"}
        assert other in COMPOSE["services"]


@pytest.mark.parametrize("service", COMPOSE["services"])
def test_containers_can_be_scaled_and_their_images_are_pinned(service: str) -> None:
    """No container name, and no `latest` tag."""
    container = COMPOSE["services"][service]

    assert "container_name" not in container
    assert PINNED.fullmatch(container["image"])


def test_a_consumer_has_time_to_release_its_streams() -> None:
    """Its container is killed only after it would have left by itself."""
    grace_s = int(COMPOSE["services"]["consumer"]["stop_grace_period"].removesuffix("s"))

    assert grace_s > load(ConsumerSettings, {}).release_s


def test_kafka_has_the_settings_of_the_local_stack() -> None:
    """Except paths and addresses."""
    expected = properties(kafka_config(KafkaOptions(home=Path("kafka"))))
    declared = environment_of("kafka")

    for name in expected.keys() - PATHS_AND_ADDRESSES:
        variable = f"KAFKA_{name.upper().replace('.', '_')}"
        assert (variable, declared.get(variable)) == (variable, expected[name])


def test_zookeeper_has_the_settings_of_the_local_stack() -> None:
    """Except paths and addresses. The file stands where the image's entry point would write its own."""
    expected = properties(zookeeper_config(ZooKeeperOptions(home=Path("zookeeper"))))
    (mount,) = (
        one for one in COMPOSE["services"]["zookeeper"]["volumes"] if one.endswith("/conf/zoo.cfg:ro")
    )
    declared = properties((ROOT / mount.partition(":")[0]).read_text())
    folders = {mount.partition(":")[2] for mount in COMPOSE["services"]["zookeeper"]["volumes"]}

    assert expected.keys() - {"clientPortAddress"} == declared.keys() - {"dataLogDir"}
    own = {"dataDir", "clientPortAddress"}
    assert {name: declared[name] for name in expected.keys() - own} == {
        name: value for name, value in expected.items() if name not in own
    }
    assert {declared["dataDir"], declared["dataLogDir"]} <= folders


@pytest.mark.parametrize("service", COMPOSE["services"])
def test_a_container_can_harm_nothing_but_its_volumes(service: str) -> None:
    """It has no capability and gains none, writes only where it has to, and has a limit of memory. What it
    writes to memory counts to that, so it is bounded as well.
    """
    declared = COMPOSE["services"][service]
    mounts = [mount.split(":")[:2][-1] for mount in declared.get("volumes", ())]
    in_memory = dict(mount.split(":") for mount in declared["tmpfs"])

    assert (declared["cap_drop"], declared["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert declared["read_only"] is True
    assert "/tmp" in {*mounts, *in_memory}
    assert sum(megabytes(options.split(",")[0].removeprefix("size=")) for options in in_memory.values()) < (
        megabytes(declared["mem_limit"]) / 2
    )
    # it has the mode of the folder that it covers, and belongs to root if nobody is named
    assert all(",uid=" in options for folder, options in in_memory.items() if folder != "/tmp")
    assert "privileged" not in declared


@pytest.mark.parametrize("service", COMPOSE["services"])
def test_no_container_runs_as_root(service: str) -> None:
    """The images of others have users of their own; ZooKeeper's would need capabilities to become it."""
    declared = COMPOSE["services"][service]

    if "build" in declared:
        (stage,) = re.findall(
            rf"(?ms)^FROM \S+ AS {declared['build']['target']}\n(.*?)(?=^FROM |\Z)", DOCKERFILE
        )
        assert "USER baton" in stage.splitlines()
    else:
        assert declared.get("user") == ("1000:1000" if service == "zookeeper" else None)


def test_the_heaps_of_servers_and_executors_fit_their_limits() -> None:
    """Java takes as much again for threads, code and buffers; above the limit, the kernel kills it."""
    kafka, zookeeper, worker = (COMPOSE["services"][name] for name in ("kafka", "zookeeper", "spark-worker"))
    (heap,) = re.findall(r"-Xmx(\w+)", kafka["environment"]["KAFKA_HEAP_OPTS"])
    given = worker["command"][worker["command"].index("--memory") + 1]

    assert megabytes(kafka["mem_limit"]) >= 2 * megabytes(heap)
    assert megabytes(zookeeper["mem_limit"]) >= 2 * zookeeper["environment"]["ZK_SERVER_HEAP"]
    assert megabytes(worker["mem_limit"]) >= 2 * megabytes(given)


def megabytes(size: str) -> int:
    """A size as Docker and Java write it.

    >>> megabytes("64m"), megabytes("2g")
    (64, 2048)
    """
    return int(size[:-1]) * {"m": 1, "g": 1024}[size[-1]]


@pytest.mark.parametrize("service", SERVICES)
def test_the_image_contains_what_the_service_runs(service: str) -> None:
    """The Dockerfile has the target, which copies the services' code and starts one of them by default."""
    stages = re.split(r"(?m)^FROM ", DOCKERFILE)
    target = COMPOSE["services"][service]["build"]["target"]
    (stage,) = [stage for stage in stages if stage.splitlines()[0].endswith(f" AS {target}")]

    assert {"COPY shared shared", "COPY services services"} <= set(stage.splitlines())
    default = json.loads(stage.rpartition("CMD ")[2])
    assert default[:-1] == COMPOSE["services"][service]["command"][:-1]


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_imports_only_what_its_image_contains(service: str) -> None:
    """The image has no command line, and of the packages only those of its lock."""
    role = COMPOSE["services"][service]["build"]["target"]
    run = [
        f"services.{service}.__main__",
        *(["services.control.spark.driver.__main__"] * (service == "control")),
    ]
    imports = f"import importlib\nfor name in {run}: importlib.import_module(name)"

    answer = run_without({"cli", "tests", *modules_missing_in(role)}, imports)

    assert answer.returncode == 0, answer.stderr


def test_images_install_the_locks_of_their_roles_which_are_parts_of_the_lock_of_the_tests() -> None:
    """So nothing runs in an image that the tests did not run with, and each has only what its role needs."""
    tested = {package.name: package for package in read_packages(LOCKS["dev"].read_text())}
    stages = re.findall(r"(?m)^FROM packages AS (\w+)-packages\nCOPY locks/(\w+).lock ./\n(.+)$", DOCKERFILE)

    assert stages == [(role, role, f"RUN pip install --require-hashes -r {role}.lock") for role in ROLES]
    for role in ROLES:
        packages = read_packages(LOCKS[role].read_text())
        assert [one for one in packages if tested[one.name] != one] == []
        assert f"COPY --from={role}-packages /opt/baton /opt/baton" in DOCKERFILE


def test_the_command_line_runs_beside_the_services() -> None:
    """`docker compose run --rm cli …` knows the addresses among containers, and `baton.env`."""
    declared = COMPOSE["services"][CLIENT]
    found = variables_in(CLIENT, {"BATON_NAMESPACE": "given", "BATON_WRITE_KEY": "given"})

    assert declared["profiles"] == [CLIENT]
    assert environment_of(CLIENT) == {
        "BATON_KAFKA": "kafka:9092",
        "BATON_URL": "http://control:8000",
        "BATON_PRODUCER_URL": "http://producer:8001",
    }
    assert (found["BATON_NAMESPACE"], found["BATON_WRITE_KEY"]) == ("given", "given")
    assert re.search(
        r'(?m)^FROM base AS cli\n(?:.*\n)*?ENTRYPOINT \["python", "-P", "-m", "cli.main"\]', DOCKERFILE
    )


def test_the_ledger_of_imports_outlives_a_command() -> None:
    """`--rm` removes the container, but not the volume; the image's user owns the folder that becomes it."""
    (mount,) = COMPOSE["services"][CLIENT]["volumes"]
    volume, _, folder = mount.partition(":")

    assert volume in COMPOSE["volumes"]
    assert image_environment(CLIENT)["BATON_STATE"] == folder
    assert re.search(rf"install -d -o baton -g baton .*{folder}\b", DOCKERFILE)


def test_the_image_of_the_command_line_contains_what_clients_import() -> None:
    """Every command loads with the packages of its lock."""
    loads = "from cli.main import COMMANDS\nfor command in COMMANDS.values(): command.load()"

    answer = run_without(modules_missing_in("cli"), loads)

    assert answer.returncode == 0, answer.stderr


def modules_missing_in(role: str) -> set[str]:
    """The modules that are installed here, but not by the role's lock."""
    locked = {canonicalize_name(package.name) for package in read_packages(LOCKS[role].read_text())}
    owners = importlib.metadata.packages_distributions()
    return {
        module
        for module, names in owners.items()
        if not {canonicalize_name(name) for name in names} & {*locked, "baton", "pip", "setuptools"}
    }


def run_without(modules: set[str], program: str) -> subprocess.CompletedProcess[str]:
    """The answer of a Python that runs the program and cannot import these modules."""
    hidden = f"import sys\nfor name in {sorted(modules)}: sys.modules[name] = None\n"
    return subprocess.run(
        [sys.executable, "-c", hidden + program], cwd=ROOT, capture_output=True, text=True, check=False
    )


def properties(text: str) -> dict[str, str]:
    """A properties file as a mapping."""
    return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))
