"""The manifests in `deploy/kubernetes`: valid, whole, and with the settings that the services have.

No cluster is needed: Kubernetes' own schemas judge each object, and the rest compares the objects with each
other, with the compose file and with the services' settings.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from cli.stack.options import SERVICES
from services.control.http.api.access.tokens import parse_token
from services.control.settings import ControlSettings
from shared.errors import InvalidInput, SettingsInvalid
from shared.service.guard import is_own_host
from shared.service.settings import load, variable_for
from tests.unit.test_compose import CACHE, COMPOSE, FOREIGN, image_environment, megabytes

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
VERSION = "1.31"
"""The oldest Kubernetes that the manifests are for."""
MERGED = YAML(typ="safe")
OBJECTS: list[dict[str, Any]] = [
    found
    for file in sorted(FOLDER.glob("*.yaml"))
    if file.name != "kustomization.yaml"
    for found in MERGED.load_all(file)
]
KUSTOMIZATION: dict[str, Any] = MERGED.load(FOLDER / "kustomization.yaml")
KINDS = {
    "consumer": "StatefulSet",
    "producer": "Deployment",
    "queue": "Deployment",
    "control": "Deployment",
}
OF_THE_POD = {"metadata.name": "baton-x-0", "status.podIP": "10.0.0.7"}
"""What a pod's fields could be."""


def name_of(found: dict[str, Any]) -> str:
    """An object's kind and name, as a test's id."""
    return f"{found['kind']}-{found['metadata']['name']}"


def the(kind: str, name: str) -> dict[str, Any]:
    """The only object of that kind and name."""
    (found,) = (one for one in OBJECTS if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def workload(service: str) -> dict[str, Any]:
    """What runs a service."""
    return the(KINDS[service], f"baton-{service}")


def container(service: str) -> dict[str, Any]:
    """The only container of a service's pods."""
    (found,) = workload(service)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def environment(service: str) -> dict[str, str]:
    """The variables that a service's process sees: the image's, those that all share, its own."""
    shared = [the("ConfigMap", one["configMapRef"]["name"])["data"] for one in container(service)["envFrom"]]
    found = image_environment(COMPOSE["services"][service]["build"]["target"])
    for more in shared:
        found |= more
    for one in container(service)["env"]:
        value = one.get("value") or OF_THE_POD[one["valueFrom"]["fieldRef"]["fieldPath"]]
        # Kubernetes replaces `$(NAME)` by what was defined above
        for name, known in found.items():
            value = value.replace(f"$({name})", known)
        found[one["name"]] = value
    return found


def settings_of(service: str, **more: str) -> Any:
    """The settings as the service reads them, without its file of secrets, which is not here."""
    given = {name: value for name, value in environment(service).items() if name != "BATON_SECRET_FILE"}
    return load(SERVICES[service], given | more)


@pytest.mark.parametrize("found", OBJECTS, ids=name_of)
def test_every_object_follows_kubernetes_schema(found: dict[str, Any]) -> None:
    """Strictly: a misspelt field, which a server would drop, is a fault."""
    assert kubernetes_validate.validate(found, VERSION, strict=True) == VERSION


def test_the_schema_finds_a_misspelt_field() -> None:
    """Otherwise the test above could pass on anything."""
    spoiled = {**workload("consumer"), "spec": {**workload("consumer")["spec"], "replica": 3}}

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(spoiled, VERSION, strict=True)


def test_the_kustomization_lists_every_file() -> None:
    """In one namespace, whose object is among them."""
    files = {file.name for file in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}

    assert set(KUSTOMIZATION["resources"]) == files
    assert the("Namespace", KUSTOMIZATION["namespace"])
    assert all("namespace" not in found["metadata"] for found in OBJECTS)


@pytest.mark.parametrize("service", KINDS)
def test_a_pod_runs_what_the_compose_file_runs(service: str) -> None:
    """The same image, tag and command."""
    declared = COMPOSE["services"][service]

    assert (container(service)["image"], container(service)["command"]) == (
        declared["image"],
        declared["command"],
    )
    tags = {one["name"]: one["newTag"] for one in KUSTOMIZATION["images"]}
    image, _, tag = declared["image"].partition(":")
    assert tags[image] == tag


@pytest.mark.parametrize("service", KINDS)
def test_every_variable_is_a_setting_that_loads(service: str) -> None:
    """A misspelt one would have no effect; and the ports are those that the pod declares."""
    known = {variable_for(field.name) for field in dataclasses.fields(SERVICES[service])}
    everybodys = {variable_for(field.name) for one in SERVICES.values() for field in dataclasses.fields(one)}
    own = {one["name"] for one in container(service)["env"]}

    assert own - known <= FOREIGN | {"POD_IP"}
    assert {name for name in environment(service) if name.startswith("BATON_")} <= everybodys | {CACHE}
    settings = settings_of(service)
    declared = {port["name"]: port["containerPort"] for port in container(service)["ports"]}
    assert declared["http"] == settings.port
    assert declared.get("private") == getattr(settings, "private_port", None)
    assert settings.replication == 3


def test_drivers_leave_no_dead_processes_behind() -> None:
    """Process 1 of a shared namespace collects them. A consumer signals its process 1, and shares none."""
    pods = {service: workload(service)["spec"]["template"]["spec"] for service in KINDS}

    assert [service for service in KINDS if pods[service].get("shareProcessNamespace")] == ["control"]


def test_a_member_is_named_after_its_pod() -> None:
    """So it gets its streams back after a restart; others reach it at its own address."""
    settings = settings_of("consumer")
    (service,) = (
        one for one in OBJECTS if name_of(one) == f"Service-{workload('consumer')['spec']['serviceName']}"
    )

    assert settings.member == OF_THE_POD["metadata.name"]
    assert settings.address == f"http://{settings.member}.{service['metadata']['name']}:{settings.port}"
    assert service["spec"]["clusterIP"] == "None"
    # else a member that opens its streams, or drains, could not be reached by those that hand over to it
    assert service["spec"]["publishNotReadyAddresses"] is True


def test_a_consumer_drains_before_it_is_killed() -> None:
    """The hook sends the only SIGTERM and waits; the time for it is longer than a drain may take."""
    spec = workload("consumer")["spec"]["template"]["spec"]

    assert spec["terminationGracePeriodSeconds"] >= settings_of("consumer").release_s + 10
    (_, _, script) = container("consumer")["lifecycle"]["preStop"]["exec"]["command"]
    assert script == "kill -TERM 1 && tail --pid=1 -f /dev/null"


@pytest.mark.parametrize("service", ["producer", "queue"])
def test_a_pod_answers_what_it_has_accepted(service: str) -> None:
    """It goes on while proxies still send to it, and then as long as Kafka may take."""
    spec = workload(service)["spec"]["template"]["spec"]
    (_, pause) = container(service)["lifecycle"]["preStop"]["exec"]["command"]

    assert spec["terminationGracePeriodSeconds"] >= int(pause) + settings_of(service).ack_timeout_s + 10


@pytest.mark.parametrize("service", KINDS)
def test_a_pod_is_probed_bounded_and_without_rights(service: str) -> None:
    """Alive is not ready: a member without Kafka must not be restarted for it."""
    found, pod = container(service), workload(service)["spec"]["template"]["spec"]

    assert found["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert found["startupProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert found["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert {"cpu", "memory"} == found["resources"]["requests"].keys()
    # throttling would cost a member its lease
    assert {"memory"} == found["resources"]["limits"].keys()
    assert (pod["securityContext"]["runAsNonRoot"], pod["automountServiceAccountToken"]) == (True, False)
    assert found["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounts, volumes = {one["name"] for one in found["volumeMounts"]}, {one["name"] for one in pod["volumes"]}
    assert mounts == volumes


@pytest.mark.parametrize("service", KINDS)
def test_a_pod_may_do_what_its_container_of_the_compose_file_may(service: str) -> None:
    """It writes to the same folders, and has the same limit of memory."""
    declared, found = COMPOSE["services"][service], container(service)
    volumes = {mount.partition(":")[2] for mount in declared.get("volumes", ())}
    written = volumes | {mount.partition(":")[0] for mount in declared["tmpfs"]}

    assert {one["mountPath"] for one in found["volumeMounts"] if not one.get("readOnly")} == written
    assert megabytes(found["resources"]["limits"]["memory"].lower().removesuffix("i")) == megabytes(
        declared["mem_limit"]
    )


@pytest.mark.parametrize("service", KINDS)
def test_selectors_find_the_pods(service: str) -> None:
    """Of the workload itself, its service, its budget and its policy."""
    labels = workload(service)["spec"]["template"]["metadata"]["labels"]
    selectors = [workload(service)["spec"]["selector"]["matchLabels"]]
    for found in OBJECTS:
        named = found["metadata"]["name"] in (f"baton-{service}", f"baton-{service}s")
        if named and found["kind"] == "Service":
            selectors.append(found["spec"]["selector"])
            assert {port["targetPort"] for port in found["spec"]["ports"]} == {"http"}
            assert {port["port"] for port in found["spec"]["ports"]} == {settings_of(service).port}
        if named and found["kind"] == "PodDisruptionBudget":
            selectors.append(found["spec"]["selector"]["matchLabels"])
        if named and found["kind"] == "NetworkPolicy":
            selectors.append(found["spec"]["podSelector"]["matchLabels"])

    assert len(selectors) == (3 if service == "control" else 4)
    assert selectors == [labels] * len(selectors)


def test_only_producers_serve_strangers() -> None:
    """Everything else names who may come; a pod without a policy of its own serves nobody."""
    policies = {one["metadata"]["name"]: one["spec"] for one in OBJECTS if one["kind"] == "NetworkPolicy"}
    nobody = policies.pop("baton-nobody")
    open_ports = {
        port["port"]
        for policy in policies.values()
        for rule in policy["ingress"]
        if "from" not in rule
        for port in rule["ports"]
    }
    served = {
        port["port"] for policy in policies.values() for rule in policy["ingress"] for port in rule["ports"]
    }

    assert nobody == {"podSelector": {}, "policyTypes": ["Ingress"]}
    assert policies.keys() == {f"baton-{service}" for service in KINDS}
    assert open_ports == {settings_of("producer").port}
    assert served == {port["containerPort"] for service in KINDS for port in container(service)["ports"]}


@pytest.mark.parametrize("service", ["control", "queue", "producer"])
def test_a_service_answers_to_the_names_of_its_service(service: str) -> None:
    """A request with another name in its `Host` gets 421; a probe's is the pod's address."""
    hosts = settings_of(service).own_hosts
    names = ["", f".{KUSTOMIZATION['namespace']}", f".{KUSTOMIZATION['namespace']}.svc"]

    assert all(
        is_own_host(f"baton-{service}{name}:8000", hosts) for name in (*names, f"{names[2]}.cluster.local")
    )
    assert is_own_host("10.0.0.7:8000", hosts)


def test_control_keeps_its_runs_on_its_volume() -> None:
    """They outlive the pod."""
    settings = settings_of("control")
    assert isinstance(settings, ControlSettings)

    assert settings.runs.startswith("/data/")
    assert {"name": "data", "mountPath": "/data"} in container("control")["volumeMounts"]


def test_no_token_in_the_repository_opens_control(tmp_path: Path) -> None:
    """Only control mounts them, and it refuses them: they can be guessed."""
    ((name, tokens),) = the("Secret", "baton-control-tokens")["stringData"].items()
    (mount,) = (one for one in container("control")["volumeMounts"] if one["name"] == "tokens")

    assert environment("control")["BATON_CONTROL_TOKENS_FILE"] == f"{mount['mountPath']}/{name}"
    assert all(one["name"] != "tokens" for one in container("consumer")["volumeMounts"])
    for line in tokens.splitlines():
        with pytest.raises(InvalidInput, match="it can be guessed"):
            parse_token(line, 1)


def test_nothing_starts_with_the_secret_in_the_repository(tmp_path: Path) -> None:
    """It is public. Members and control mount the object that holds it, and read it as a file."""
    ((name, secret),) = the("Secret", "baton-secrets")["stringData"].items()
    file = tmp_path / name
    file.write_text(secret)

    with pytest.raises(SettingsInvalid, match="it can be guessed"):
        settings_of("consumer", BATON_SECRET_FILE=str(file))
    for service in ("consumer", "control"):
        (mount,) = (one for one in container(service)["volumeMounts"] if one["name"] == "secrets")
        assert environment(service)["BATON_SECRET_FILE"] == f"{mount['mountPath']}/{name}"
        assert mount["readOnly"] is True
