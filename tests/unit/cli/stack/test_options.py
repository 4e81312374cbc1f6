"""The options of the local stack: ports, environments, faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.stack.commands.up import up
from cli.stack.local.programs import StackProcesses
from cli.stack.local.summary import summary_of
from cli.stack.options import StackOptions, environment_of, ports_of
from services.control.settings import ControlSettings, spark_jars_for
from shared.errors import SettingsInvalid
from shared.service.settings import load


@pytest.mark.parametrize("offset", [0, 100])
def test_the_ports_are_the_documented_ones_plus_the_offset(offset: int) -> None:
    """So that stacks with different offsets can run side by side."""
    assert ports_of(StackOptions(consumers=2, port_offset=offset)) == {
        "control": 8000 + offset,
        "producer": 8001 + offset,
        "queue": 8002 + offset,
        "consumer-0": 8010 + offset,
        "consumer-1": 8011 + offset,
        "kafka": 9092 + offset,
        "kafka controller": 9093 + offset,
        "zookeeper": 2181 + offset,
    }


def test_running_servers_need_no_port() -> None:
    """With addresses of Kafka and ZooKeeper, the stack starts neither."""
    options = StackOptions(consumers=0, kafka="k:1", zookeeper="z:2")

    assert ports_of(options) == {"control": 8000, "producer": 8001, "queue": 8002}
    assert (options.kafka_address, options.zookeeper_address) == ("k:1", "z:2")


def test_spark_workers_are_a_cluster_that_control_and_they_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master and so many workers, each at a port of its own; without workers, jobs run in their drivers."""
    monkeypatch.delenv("BATON_SPARK_MASTER", raising=False)
    options = StackOptions(home=tmp_path, spark_workers=2)
    processes, alone = StackProcesses(options), StackProcesses(StackOptions(home=tmp_path))
    workers = [processes.spark_worker(index) for index in range(2)]

    ports = ports_of(options)
    master = f"spark://127.0.0.1:{ports['spark-master']}"
    assert len(set(ports.values())) == len(ports) == len(ports_of(StackOptions())) + 3
    assert [worker.address for worker in workers] == [
        f"127.0.0.1:{ports[name]}" for name in ("spark-worker-0", "spark-worker-1")
    ]
    assert {worker.argv[-1] for worker in workers} == {master}
    assert processes.control().environment["BATON_SPARK_MASTER"] == master
    assert "BATON_SPARK_MASTER" not in alone.control().environment


def test_control_gets_the_tokens_that_its_stack_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever `baton up` was called, and control alone; what is printed says how to log in."""
    monkeypatch.delenv("BATON_CONTROL_TOKENS_FILE", raising=False)
    monkeypatch.chdir(tmp_path)
    options = StackOptions(home=tmp_path / "home", control_tokens=Path("tokens"))
    processes = StackProcesses(options)

    assert load(ControlSettings, processes.control().environment).tokens_file == tmp_path / "tokens"
    assert "BATON_CONTROL_TOKENS_FILE" not in processes.producer().environment
    assert "log in with a token of tokens" in summary_of(options)
    with pytest.raises(SettingsInvalid, match="makes tokens of its own"):
        replace(options, secure=True).check()


def test_up_takes_the_tokens_of_its_environment(tmp_path: Path) -> None:
    """A file that is missing is a fault, not a control without locks."""
    environment = {"BATON_CONTROL_TOKENS_FILE": str(tmp_path / "missing")}

    answer = CliRunner().invoke(up, ["--home", str(tmp_path / "home")], env=environment)

    assert answer.exit_code == 2
    assert "missing" in answer.output


@pytest.mark.parametrize(
    ("given", "lake", "uses"),
    [
        ({}, "{home}/lake", ["spark"]),
        ({"BATON_LAKE": "here"}, f"{Path.cwd()}/here", ["spark"]),
        ({"BATON_LAKE": "s3a://bucket/lake"}, "s3a://bucket/lake", ["spark", "s3"]),
    ],
)
def test_the_lake_is_in_the_home_unless_it_is_set(
    given: dict[str, str], lake: str, uses: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the shell or by the options. Control finds the jars that it needs there in the launcher's cache."""
    monkeypatch.delenv("BATON_LAKE", raising=False)
    monkeypatch.setenv("BATON_CACHE", "cache")
    by_options = StackProcesses(StackOptions(home=tmp_path, environment=given)).control().environment
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    environment = StackProcesses(StackOptions(home=tmp_path)).control().environment

    settings = load(ControlSettings, environment)
    assert by_options["BATON_LAKE"] == settings.lake == lake.format(home=tmp_path)
    folders = [f"{Path.cwd()}/cache/jars/{use}" for use in uses]
    assert spark_jars_for(settings, environment).split(":") == folders


def test_the_environment_of_a_service_has_all_options() -> None:
    """The stack's options override the launcher's environment, the service's own values override both."""
    options = StackOptions(home=Path("h"), streams=7, environment={"BATON_GAP_MS": "5", "BATON_PORT": "1"})
    base = {"PATH": "/bin", "BATON_KAFKA": "elsewhere:1", "BATON_GROUP": "fraud"}

    found = environment_of(options, 8010, base, member="consumer-0")

    assert found["PATH"] == "/bin"
    assert found["BATON_GROUP"] == "fraud"
    assert found["BATON_KAFKA"] == "127.0.0.1:9092"
    assert (found["BATON_STREAMS"], found["BATON_GAP_MS"]) == ("7", "5")
    assert (found["BATON_PORT"], found["BATON_MEMBER"]) == ("8010", "consumer-0")


def test_each_process_gets_its_own_secrets_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell has those of all services and of the command line, and the environment of a process can be read
    by whatever breaks into it. Servers get none. A misspelt name reaches everybody: services report it.
    """
    secrets = {
        "BATON_SECRET_FILE": {"consumer", "queue", "control"},
        "BATON_WRITE_KEYS": {"producer"},
        "BATON_QUEUE_KEYS_FILE": {"queue"},
        "BATON_QUEUE_KEY_FILE": {"control"},
        "BATON_SPARK_SECRET_FILE": set(),  # of another stack
        "BATON_TOKEN": set(),
        "BATON_WRITE_KEY": set(),
        "AWS_SECRET_ACCESS_KEY": {"control"},
        "BATON_SECRRET": {"producer", "consumer", "queue", "control"},
    }
    for name in secrets:
        monkeypatch.setenv(name, "of the shell")
    processes = StackProcesses(StackOptions(home=tmp_path, spark_workers=1))
    services = (processes.producer(), processes.consumer(0), processes.queue(), processes.control())
    servers = (processes.zookeeper(), processes.spark_master(), processes.spark_worker(0))

    found = {
        name: {spec.argv[-1].removeprefix("services.") for spec in services if name in spec.environment}
        for name in secrets
    }

    assert found == secrets
    assert [
        spec.name for spec in servers if secrets.keys() & spec.environment.keys() != {"BATON_SECRRET"}
    ] == []
    assert all("PATH" in spec.environment for spec in (*services, *servers))
