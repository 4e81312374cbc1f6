"""The locks of a secured local stack: which files and variables there are, and who gets which."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.stack.local.programs import StackProcesses
from cli.stack.options import StackOptions
from cli.stack.secured.locks import OPERATOR, TOKENS, is_secured, make_locks
from cli.terminal.local_stack import tls_for, token_for
from services.control.http.api.access.caller import ROLES
from services.control.http.api.access.tokens import parse_token
from services.control.settings import ControlSettings
from services.producer.settings import ProducerSettings
from shared.errors import SettingsInvalid
from shared.service.settings import load
from shared.service.tls import TlsFiles


def test_passwords_stay_and_certificates_are_new_at_each_start(tmp_path: Path) -> None:
    """The data of Kafka and ZooKeeper know the passwords; nobody else can read any of the files."""
    before = is_secured(tmp_path)
    locks = make_locks(tmp_path, 9094)
    first = {file.name: file.read_bytes() for file in locks.folder.iterdir()}
    make_locks(tmp_path, 9094)
    second = {file.name: file.read_bytes() for file in locks.folder.iterdir()}

    changed = {name for name in first if first[name] != second[name]}
    kept = {name for name in first if name.endswith(".password")} | {"ca.key", "ca.pem", TOKENS}
    assert (before, is_secured(tmp_path)) == (False, True)
    assert changed == first.keys() - kept
    assert len({first[name] for name in kept}) == len(kept)
    assert locks.folder.stat().st_mode & 0o077 == 0


def test_a_service_takes_no_locks_from_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those are of another stack; a secured one gives each service its own, and all settings load."""
    for name in (
        "BATON_KAFKA_USER",
        "BATON_TLS_CA_FILE",
        "BATON_ZOOKEEPER_USER",
        "BATON_CONTROL_TOKENS_FILE",
    ):
        monkeypatch.setenv(name, "of-another-stack")
    monkeypatch.setenv("BATON_ZOOKEEPER_TIMEOUT_S", "7")
    options = StackOptions(home=tmp_path, secure=True)
    locks = make_locks(tmp_path, options.certificate_port)

    plain = StackProcesses(StackOptions(home=tmp_path)).producer()
    secured = StackProcesses(options, locks)
    producer = load(ProducerSettings, secured.producer().environment)
    control = load(ControlSettings, secured.control().environment)

    assert load(ProducerSettings, plain.environment).tls == TlsFiles()
    assert "of-another-stack" not in plain.environment.values()
    assert (producer.kafka_user, control.kafka_user) == ("producer", "control")
    assert producer.tls != control.tls
    assert (producer.zookeeper_user, producer.zookeeper_timeout_s) == ("baton", 7)
    assert (producer.address, secured.producer().address) == (options.producer_url, options.producer_url)


def test_control_has_a_token_for_each_role_and_the_command_line_may_do_everything(tmp_path: Path) -> None:
    """Control reads the file as any other; its tokens are what the single files say."""
    options = StackOptions(home=tmp_path, secure=True)
    locks = make_locks(tmp_path, options.certificate_port)
    control = load(ControlSettings, StackProcesses(options, locks).control().environment)
    assert control.tokens_file is not None

    lines = control.tokens_file.read_text().splitlines()
    tokens = [parse_token(line, number) for number, line in enumerate(lines, 1)]
    own = token_for("http://elsewhere", {"BATON_TOKEN_FILE": str(locks.token_file)})

    assert [token.caller.role for token in tokens] == list(ROLES)
    assert len({token.secret for token in tokens}) == len(ROLES)
    assert [token.caller.role for token in tokens if token.secret == own.encode()] == ["admin"]
    assert control.tokens_file.stat().st_mode & 0o077 == 0


def test_only_servers_of_its_own_can_be_secured() -> None:
    """The stack could not make their users."""
    with pytest.raises(SettingsInvalid, match="--secure"):
        StackOptions(secure=True, kafka="elsewhere:9092").check()


def test_the_environment_decides_what_a_command_shows(tmp_path: Path) -> None:
    """Without it, a command shows the local stack's certificate, but only to that stack."""
    locks = make_locks(tmp_path, 9094)
    own = locks.tls_environment(OPERATOR)

    nowhere = {"BATON_HOME": str(tmp_path)}
    assert tls_for("https://127.0.0.1:8000", nowhere) == TlsFiles()
    assert tls_for("https://elsewhere", nowhere | own) == locks.tls
    assert tls_for("https://elsewhere", nowhere | own | {"BATON_TLS_CLIENT_CA_FILE": "x"}) == locks.tls
