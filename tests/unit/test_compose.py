"""The stack in containers is the local stack: the same commands, servers and settings.

No container engine is needed: these tests check the file against the compose specification and compare it
with what `cli/stack` starts.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from cli.commands.settings import SERVICES
from cli.stack.local import LocalStack
from cli.stack.options import StackOptions
from cli.stack.servers import KafkaOptions, ZooKeeperOptions, kafka_config, zookeeper_config
from services.consumer.settings import ConsumerSettings
from services.control.api.guard import is_own_host
from services.control.settings import ControlSettings, own_hosts_for
from shared.service.settings import load, variable_for

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = YAML(typ="safe").load(FILE)
SERVERS = ("zookeeper", "kafka")
PINNED = re.compile(r"[a-z0-9/.-]+:\d+(\.\d+)+(-[a-z0-9.-]+)?")
FOREIGN = {"SPARK_LOCAL_IP"}
"""Variables in the services' environments that Spark reads, not Baton."""
PATHS_AND_ADDRESSES = {
    "log.dirs",
    "listeners",
    "advertised.listeners",
    "controller.quorum.bootstrap.servers",  # the image formats its storage for a fixed quorum
}
"""Kafka's settings for paths and addresses, which differ in a container."""


def environment_of(service: str) -> dict[str, str]:
    """A service's environment when the shell sets nothing: `${NAME:-default}` becomes its default."""
    declared = COMPOSE["services"][service]["environment"]
    return {name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value)) for name, value in declared.items()}


def test_the_file_follows_the_compose_specification() -> None:
    """The specification's published schema accepts it."""
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]

    answer = subprocess.run([*checker, str(FILE)], capture_output=True, text=True, check=False, timeout=60)

    assert answer.returncode == 0, answer.stdout


def test_the_containers_are_the_processes_of_the_local_stack() -> None:
    """ZooKeeper, Kafka, producer, consumer and control, and nothing else."""
    assert set(COMPOSE["services"]) == {*SERVERS, *SERVICES}


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_starts_with_the_command_of_the_local_stack(service: str) -> None:
    """Only the interpreter's path differs."""
    stack = LocalStack(StackOptions())
    spec = {"producer": stack._producer, "consumer": lambda: stack._consumer(0), "control": stack._control}[
        service
    ]()

    assert COMPOSE["services"][service]["command"] == ["python", *spec.argv[1:]]


@pytest.mark.parametrize("service", SERVICES)
def test_every_variable_is_a_setting_that_the_service_knows(service: str) -> None:
    """A service ignores a misspelt variable without a word. The values must load, too."""
    known = {variable_for(field.name) for field in dataclasses.fields(SERVICES[service])}
    environment = environment_of(service)

    assert set(environment) <= known | FOREIGN
    settings = load(SERVICES[service], environment)
    assert (settings.kafka, settings.zookeeper) == ("kafka:9092", "zookeeper:2181")


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_listens_on_its_port_of_the_local_stack(service: str) -> None:
    """Only control and the producer are published, on loopback: there may be any number of consumers."""
    port = {"control": 8000, "producer": 8001, "consumer": 8010}[service]
    published = [] if service == "consumer" else [f"127.0.0.1:{port}:{port}"]

    assert environment_of(service)["BATON_PORT"] == str(port)
    assert COMPOSE["services"][service].get("ports", []) == published


def test_control_answers_to_the_name_of_its_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other containers reach it as `control`, which is the name of its machine too."""
    monkeypatch.setattr(
        "socket.gethostname", lambda: COMPOSE["services"]["control"].get("hostname", "5f1e9a")
    )
    settings = load(ControlSettings, environment_of("control"))

    assert is_own_host("control:8000", own_hosts_for(settings))


@pytest.mark.parametrize("service", COMPOSE["services"])
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
    """Except paths and addresses."""
    expected = properties(zookeeper_config(ZooKeeperOptions(home=Path("zookeeper"))))
    declared = environment_of("zookeeper")

    assert declared["ZOO_CFG_EXTRA"] == f"maxSessionTimeout={expected.pop('maxSessionTimeout')}"
    names = {
        "tickTime": "ZOO_TICK_TIME",
        "maxClientCnxns": "ZOO_MAX_CLIENT_CNXNS",
        "admin.enableServer": "ZOO_ADMINSERVER_ENABLED",
        "4lw.commands.whitelist": "ZOO_4LW_COMMANDS_WHITELIST",
        "autopurge.snapRetainCount": "ZOO_AUTOPURGE_SNAPRETAINCOUNT",
        "autopurge.purgeInterval": "ZOO_AUTOPURGE_PURGEINTERVAL",
    }
    assert expected.keys() - names.keys() == {"dataDir", "clientPort", "clientPortAddress"}
    assert {name: declared[variable] for name, variable in names.items()} == {
        name: expected[name] for name in names
    }


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
    """The image has no command line, and only control's has the packages that the light one removes."""
    (left_out,) = re.findall(r"(?m)^FROM packages AS light\nRUN pip uninstall --yes (.+)$", DOCKERFILE)
    absent = ["cli", "tests", *([] if service == "control" else left_out.split())]
    run = [f"services.{service}.__main__", *(["services.control.spark.driver"] * (service == "control"))]
    program = (
        "import sys, importlib\n"
        f"for name in {absent}: sys.modules[name] = None\n"
        f"for name in {run}: importlib.import_module(name)"
    )

    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert answer.returncode == 0, answer.stderr


def properties(text: str) -> dict[str, str]:
    """A properties file as a mapping."""
    return dict(line.split("=", 1) for line in text.splitlines())
