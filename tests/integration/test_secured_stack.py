"""`baton up --secure`: its own commands do their work, and strangers get nothing at any door."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from cli.kafka.sessions import open_sessions
from cli.stack.options import StackOptions
from cli.stack.secured.certificates import make_authority
from cli.stack.secured.locks import FOLDER, OPERATOR, TOKENS, StackLocks
from cli.stack.servers.spark_servers import spark_environment, spark_worker_argv
from shared.errors import KafkaUnavailable, ZooKeeperRefused, ZooKeeperUnavailable
from shared.kafka.admin.topics import list_topics
from shared.kafka.connect.access import KafkaAccess
from shared.model.names import DEFAULT_GROUP, Names
from shared.service.private_files import write_private
from shared.service.tls import TlsFiles, client_context
from shared.zookeeper.access import access_source
from shared.zookeeper.connection import ZooKeeper
from tests.servers import free_port_offset
from tests.spark_cluster import await_line
from tests.waiting import until

ZOOKEEPER_TIMEOUT_S = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A secured stack of one consumer and two streams, and how the command line enters it."""

    options: StackOptions
    locks: StackLocks
    summary: str

    @property
    def kafka(self) -> KafkaAccess:
        return self.locks.kafka_access(self.options.kafka_address)


def baton(home: Path, *arguments: str) -> str:
    """What the command line prints, which finds the stack by its home; its exit code must be 0."""
    argv = [sys.executable, "-m", "cli.main", *arguments]
    environment = os.environ | {"BATON_HOME": str(home), "BATON_STATE": str(home / "state")}
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def start(home: Path, offset: int, *more: str) -> Running:
    """Starts the stack of this home, or starts it again."""
    sizes = ("--consumers", "1", "--streams", "2", "--port-offset", str(offset))
    summary = baton(home, "up", "--detach", *sizes, *more)
    options = StackOptions(home=home, port_offset=offset, secure=True)
    locks = StackLocks(folder=home / FOLDER, certificate_port=options.certificate_port)
    return Running(options=options, locks=locks, summary=summary)


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Running]:
    """A secured stack, started as a user does it."""
    try:
        yield start(tmp_path / "home", free_port_offset(), "--secure")
    finally:
        baton(tmp_path / "home", "down")


async def test_a_secured_stack_serves_its_owner_and_nobody_else(stack: Running, tmp_path: Path) -> None:
    """The owner imports and reads as ever, also after a restart; nobody else gets in anywhere."""
    home = stack.options.home
    log = tmp_path / "log.ndjson"
    rows = [{"key": f"k{n % 3}", "time": 1_700_000_000_000 + n, "n": n} for n in range(30)]
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    arguments = ("--format", "ndjson", "--key", "key", "--time", "time", "--close", "--wait")

    baton(home, "import", str(log), *arguments)
    (member,) = json.loads(baton(home, "members", "-o", "json"))["members"]

    assert member["address"].startswith("https://")
    assert "k0" in baton(home, "sessions")
    assert await delivered(stack) == 30
    await strangers_get_nothing(stack, tmp_path)
    assert no_secret_shows(stack) == []

    # certificates are new, passwords are kept, and what is locked stays so
    baton(home, "down")
    again = start(home, stack.options.port_offset)
    assert again.options.control_url in again.summary
    assert baton(home, "streams", "-o", "json")
    assert await delivered(again) == 30


async def delivered(stack: Running) -> int:
    """The number of fragments in all delivered sessions."""
    async with open_sessions(stack.kafka, Names().sessions(DEFAULT_GROUP)) as found:
        return sum([one.session.fragments async for one in found.everything()])


async def strangers_get_nothing(stack: Running, folder: Path) -> None:
    """Tries every door without a key, and with keys of others."""
    foreign = make_authority(folder / "foreign").issue(OPERATOR)
    trusting = TlsFiles(ca=str(stack.locks.folder / "ca.pem"))
    forged = replace(trusting, certificate=str(foreign.certificate), key=str(foreign.key))
    await _services_refuse(stack, trusting, forged)
    await _control_wants_a_token(stack)

    (folder / "wrong").write_text("wrong")
    wrong = replace(stack.kafka, password_file=str(folder / "wrong"))
    at_certificates = KafkaAccess(
        bootstrap=stack.locks.admin.bootstrap, security_protocol="SSL", ca_file=trusting.ca
    )
    shown = replace(at_certificates, certificate_file=forged.certificate, key_file=forged.key)
    unlocked = KafkaAccess(bootstrap=stack.options.kafka_address)
    for access in (unlocked, wrong, at_certificates, shown):
        with pytest.raises(KafkaUnavailable):
            await list_topics(access)

    mistaken = access_source("baton", str(folder / "wrong"))
    async with ZooKeeper(stack.options.zookeeper_address, ZOOKEEPER_TIMEOUT_S, mistaken) as znodes:
        for path in (Names().root, Names().table, Names().secret):
            with pytest.raises(ZooKeeperRefused):
                await znodes.get(path)
    async with ZooKeeper(stack.options.zookeeper_address, ZOOKEEPER_TIMEOUT_S) as znodes:
        with pytest.raises(ZooKeeperUnavailable):
            await znodes.children("/")


@pytest.mark.soak
@pytest.mark.parametrize("secure", [("--secure",), ()], ids=["secured", "open"])
async def test_the_jobs_run_on_the_cluster_of_the_stack(tmp_path: Path, secure: tuple[str, ...]) -> None:
    """In a secured one, executors reach the locked Kafka, and no worker without the secret is admitted."""
    home = tmp_path / "home"
    try:
        stack = start(home, free_port_offset(), *secure, "--spark-workers", "2")
        log = tmp_path / "log.ndjson"
        rows = [{"key": f"k{n % 3}", "time": 1_700_000_000_000 + n, "n": n} for n in range(30)]
        log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        arguments = ("--format", "ndjson", "--key", "key", "--time", "time", "--close", "--wait")
        baton(home, "import", str(log), *arguments)
        baton(home, "run", "lake", "reports", "audit", "--wait")
        assert list((home / "spark").glob("spark-worker-*/app-*")) != []  # the executors' folders
        if secure:
            master = f"spark://127.0.0.1:{stack.options.spark_master_port}"
            await asyncio.to_thread(spark_admits_no_worker, master, tmp_path)
            assert no_secret_shows(stack) == []
    finally:
        baton(home, "down")


def spark_admits_no_worker(master: str, folder: Path) -> None:
    """A worker without the cluster's secret gives up."""
    argv = spark_worker_argv(0, master, folder / "worker", "512m")
    log = folder / "worker.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            argv, env=os.environ | spark_environment(), stdout=output, stderr=output, start_new_session=True
        ) as worker,
    ):
        try:
            await_line(log, "Failed to connect to master|Successfully registered")
        finally:
            worker.kill()
    assert "Successfully registered" not in log.read_text()


async def _services_refuse(stack: Running, *strangers: TlsFiles) -> None:
    options = stack.options
    ports = (options.control_port, options.producer_port, options.queue_port, options.consumer_port(0))
    for port, path in itertools.product(ports, ("/livez", "/metrics", "/docs")):
        async with httpx.AsyncClient(trust_env=False) as plain:
            with pytest.raises(httpx.TransportError):
                await plain.get(f"http://127.0.0.1:{port}{path}")
        for stranger in strangers:
            async with httpx.AsyncClient(verify=client_context(stranger), trust_env=False) as client:
                with pytest.raises(httpx.TransportError):
                    await client.get(f"https://127.0.0.1:{port}{path}")


async def _control_wants_a_token(stack: Running) -> None:
    url = stack.options.control_url
    async with httpx.AsyncClient(verify=client_context(stack.locks.tls), trust_env=False) as operator:
        assert (await operator.get(f"{url}/livez")).status_code == 200
        for token in ("", stack.locks.spark_secret.read_text().strip()):
            headers = {"authorization": f"Bearer {token}"} if token else {}
            assert (await operator.get(f"{url}/members", headers=headers)).status_code == 401
        form = await operator.post(f"{url}/login", data={"token": stack.locks.token_file.read_text().strip()})
        assert "Secure" in form.headers["set-cookie"]
        assert (await operator.get(f"{url}/me")).json()["role"] == "admin"

        # the running control rereads its file: the old token, and the cookie made of it, end together
        file = stack.locks.folder / TOKENS
        kept, rotated = file.read_bytes(), b"rotated-0123456789 view name=rotated\n"
        for content, status in ((rotated, 401), (kept, 200)):
            write_private(file, content)

            async def is_reread(expected: int = status) -> bool:
                return (await operator.get(f"{url}/me")).status_code == expected

            await until(is_reread)


def no_secret_shows(stack: Running) -> list[str]:
    """The files of the home in which others may read a secret; none should be."""
    secrets = [file.read_bytes().strip() for file in stack.locks.folder.glob("*.password")]
    secrets += [file.read_bytes().strip() for file in stack.locks.folder.glob("*.key")]
    assert len(secrets) == 18
    found = []
    for file in stack.options.home.rglob("*"):
        if file.is_file() and stat.S_IMODE(file.stat().st_mode) & 0o077:
            content = file.read_bytes()
            found += [f"{file}" for secret in secrets if secret in content]
    return found
