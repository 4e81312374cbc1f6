"""Client commands find the local stack of their folder, and nothing else by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from cli.main import cli
from cli.stack.faults import AlreadyRunning, JavaMissing
from cli.stack.local.summary import summary_of
from cli.stack.options import StackOptions
from cli.stack.processes.identity import Identity, identify
from cli.stack.processes.state import StackState, lock_home, save_state
from cli.terminal.local_stack import find_home, find_stack
from cli.terminal.options import kafka_options, namespace_option, url_option
from shared.kafka.connect.access import KafkaAccess
from shared.model.names import Names
from tests.unit.cli.fake_services import InMemoryControl, served


@click.command()
@url_option
@kafka_options
def addresses(url: str, kafka: KafkaAccess, names: Names) -> None:
    """Prints what a command would use."""
    locks = f" {kafka.security_protocol} {kafka.ca_file}" if kafka.is_given else ""
    click.echo(f"{url} {kafka.bootstrap} {names.namespace or '-'}{locks}")


@click.command()
@url_option
@namespace_option
def namespace(url: str, names: Names) -> None:
    """Prints the namespace that a command uses which asks control only."""
    click.echo(names.namespace or "-")


def used(*arguments: str, **environment: str) -> str:
    """The addresses that a command uses with these options and this environment."""
    unset: dict[str, str | None] = dict.fromkeys(
        ("BATON_URL", "BATON_KAFKA", "BATON_NAMESPACE", "BATON_HOME")
    )
    return CliRunner().invoke(addresses, arguments, env=unset | environment).stdout.strip()


def make_home(folder: Path) -> Path:
    """The home of a stack that has run in this folder."""
    with lock_home(folder / ".baton"):
        return folder / ".baton"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in whose folder, two levels below, commands run."""
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    make_home(tmp_path)
    monkeypatch.chdir(below)
    return tmp_path / ".baton"


def run_stack(
    home: Path,
    *,
    pid: int | None = None,
    producer: str = "http://127.0.0.1:8101",
    kafka_locks: dict[str, str] | None = None,
) -> None:
    """Writes the state of a stack with --port-offset 100 in a namespace."""
    state = StackState(
        supervisor=Identity(pid or os.getpid(), "now"),
        ready=True,
        control="http://127.0.0.1:8100",
        producer=producer,
        kafka="127.0.0.1:9192",
        kafka_locks=kafka_locks or {},
        namespace="x",
    )
    save_state(home, state)


DEFAULTS = "http://127.0.0.1:8000 127.0.0.1:9092 -"


def test_a_command_uses_the_stack_of_its_folder(home: Path) -> None:
    """With its port offset and its namespace; without a running one, the default ports."""
    assert used() == DEFAULTS

    run_stack(home)

    assert used() == "http://127.0.0.1:8100 127.0.0.1:9192 x"
    assert used(BATON_HOME=str(home.parent)) == DEFAULTS


def test_an_address_that_is_given_wins(home: Path) -> None:
    """By option or environment; the local namespace goes with the local Kafka, however that is named."""
    run_stack(home)

    assert used("--kafka", "k:1") == "http://127.0.0.1:8100 k:1 -"
    assert used("--kafka", "k:1", "--namespace", "y") == "http://127.0.0.1:8100 k:1 y"
    assert used("--url", "http://c") == "http://c 127.0.0.1:9192 x"
    assert used(BATON_URL="http://c") == "http://c 127.0.0.1:9192 x"
    assert used("--namespace", "y", "--url", "http://c") == "http://c 127.0.0.1:9192 y"
    assert used(BATON_KAFKA="127.0.0.1:9192") == "http://127.0.0.1:8100 127.0.0.1:9192 x"


def test_a_command_opens_the_locks_of_the_local_kafka_alone(home: Path, tmp_path: Path) -> None:
    """Of another one, the environment says how; what is set there takes the place of all of the stack's."""
    ca_file = tmp_path / "ca.pem"
    ca_file.touch()
    locks = {"BATON_KAFKA_SECURITY_PROTOCOL": "SSL", "BATON_KAFKA_CA_FILE": str(ca_file)}
    run_stack(home, kafka_locks=locks)

    assert used().endswith(f"127.0.0.1:9192 x SSL {ca_file}")
    assert used("--kafka", "k:1").endswith(" k:1 -")
    assert used("--kafka", "k:1", **locks).endswith(f" k:1 - SSL {ca_file}")
    assert used(BATON_KAFKA_SECURITY_PROTOCOL="SSL").endswith("127.0.0.1:9192 x SSL")
    assert used(BATON_KAFKA_SECURITY_PROTOCOL="SASL_SSL") == ""  # faults


@pytest.mark.parametrize(("arguments", "expected"), [([], "x"), (["--url", "http://c"], "-")])
def test_without_kafka_the_namespace_goes_with_control(
    home: Path, arguments: list[str], expected: str
) -> None:
    """`baton lag` has the names of topics from control."""
    run_stack(home)

    assert CliRunner().invoke(namespace, arguments, env={"BATON_URL": None}).stdout == f"{expected}\n"


def test_a_stack_that_is_dead_or_elsewhere_is_not_used(home: Path) -> None:
    """A killed stack leaves its state behind, and a foreign folder must not get anybody's write key."""
    run_stack(home, pid=2**22 + 1)
    assert used() == DEFAULTS

    run_stack(home, producer="http://example.org")
    assert used() == DEFAULTS


@pytest.mark.parametrize(
    ("homes", "folders", "expected"),
    [
        (["", "a"], [], "a/.baton"),
        # what a service that was started by hand has left there
        ([""], ["a/.baton", "a/b/.baton/lake"], ".baton"),
        ([], ["a/.baton"], "a/b/.baton"),
    ],
)
def test_the_home_of_a_folder_is_the_nearest_one_above(
    homes: list[str], folders: list[str], expected: str, tmp_path: Path
) -> None:
    """A stack has run in a home; without one, a home can be made in the folder itself."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    for folder in homes:
        make_home(tmp_path / folder)

    assert find_home({}, tmp_path / "a" / "b") == tmp_path / expected
    assert find_home({"BATON_HOME": "x"}, tmp_path / "a" / "b") == Path("x")


def test_the_home_of_another_user_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder like /tmp anybody can make one, and fill it with links."""
    assert find_home({}) == home

    monkeypatch.setattr(os, "getuid", lambda: home.stat().st_uid + 1)

    assert find_home({}) == Path.cwd() / ".baton"


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[StackOptions]:
    """The options with which `up` would have started a stack, which it does not."""
    found: list[StackOptions] = []

    def prepare(options: StackOptions) -> None:
        found.append(options)
        raise JavaMissing

    monkeypatch.setattr("cli.stack.commands.up.prepare", prepare)
    return found


def test_up_and_down_find_the_stack_of_a_folder_above(home: Path, prepared: list[StackOptions]) -> None:
    """A second stack would need the ports of the first, and `down` would find nothing to stop."""
    with lock_home(home):
        up = CliRunner().invoke(cli, ["up"], env={"BATON_HOME": None})
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]) as process:
        supervisor = identify(process.pid)
        assert supervisor is not None
        save_state(home, StackState(supervisor=supervisor))
        down = CliRunner().invoke(cli, ["down"], env={"BATON_HOME": None})
        process.kill()

    assert isinstance(up.exception, AlreadyRunning)
    assert f"already running in {home}" in up.exception.detail
    assert down.output == "stopped\n"
    assert prepared == []
    assert not (Path.cwd() / ".baton").exists()


def test_up_makes_a_home_in_the_folder_if_there_is_none_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: list[StackOptions]
) -> None:
    """The next `up`, from a folder below, continues with its data."""
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(cli, ["up"], env={"BATON_HOME": None})
    (tmp_path / "below").mkdir()
    monkeypatch.chdir("below")
    CliRunner().invoke(cli, ["up"], env={"BATON_HOME": None})

    assert [options.home for options in prepared] == [tmp_path / ".baton"] * 2


@given(raw=st.binary(max_size=60))
def test_any_state_file_is_read_without_an_error(
    raw: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever is in it, it is then not used."""
    folder = tmp_path_factory.mktemp("home")
    (make_home(folder) / "stack.json").write_bytes(raw)

    assert find_stack({}, folder) is None


def test_streams_need_no_address_beside_a_stack(home: Path) -> None:
    """The command asks the control of the stack of its folder."""
    none = {"streams": 0, "lag": 0, "open_sessions": 0, "sessions": 0}
    with served(InMemoryControl({"/streams": {"streams": [], "totals": none}}).answer) as url:
        state = StackState(
            supervisor=Identity(os.getpid(), "now"), control=url, producer=url, kafka="127.0.0.1:1"
        )
        save_state(home, state)
        answer = CliRunner().invoke(cli, ["streams"], env={"BATON_URL": None})

    assert answer.exit_code == 0, answer.output


def test_up_prints_what_to_export() -> None:
    """For commands elsewhere and for other programs, whole at any width."""
    text = summary_of(
        StackOptions(home=Path("/a/very/long/" + "path/" * 30 + ".baton"), port_offset=100, namespace="x")
    )

    assert (
        "  export BATON_URL=http://127.0.0.1:8100\n  export BATON_PRODUCER_URL=http://127.0.0.1:8101\n"
        in text
    )
    assert "  export BATON_KAFKA=127.0.0.1:9192\n  export BATON_NAMESPACE=x" in text
    assert "/a/very/long/" + "path/" * 30 + ".baton/logs" in text
    assert "  console    http://127.0.0.1:8100/\n" in text
