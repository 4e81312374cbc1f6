"""Handovers over HTTPS: who is let in, what others are told, and certificates that change meanwhile."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import random
import shutil
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from cli.stack.secured.certificates import Authority, make_authority
from cli.stack.secured.znode_locks import change_acls
from services.consumer.adapters.http_peers import HttpPeers
from services.control.adapters.processes.client import http_client
from services.control.adapters.processes.kept_connections import KeptConnections
from shared.errors import PeerUnavailable
from shared.service import tls as tls_module
from shared.service.runtime import JsonLines
from shared.service.tls import CLOSED, TlsFiles
from tests.e2e.readers import judge
from tests.e2e.visits import Visits
from tests.integration.consumers import SETTINGS, Joined, group
from tests.integration.handover_ends import PATIENT, SECRETS, here_of, serving, wall_ms
from tests.peers_contract import MAX_BODY_BYTES, Donation, Pair, PeersContract
from tests.servers import free_port
from tests.waiting import until

SELF_SIGNED = "self-signed certificate in certificate chain"
WRONG_HOST = "IP address mismatch, certificate is not valid for '127.0.0.1'."


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path / "ca")


@pytest.fixture(autouse=True)
def _every_line(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Logs each reason again in each test, and shows it in the text of the log."""
    monkeypatch.setattr(tls_module, "_logged_at_s", {})
    caplog.handler.setFormatter(JsonLines())


def files_of(authority: Authority, name: str, **options: object) -> TlsFiles:
    """What a member needs whose peers show certificates as well."""
    made = authority.issue(name, **options)  # type: ignore[arg-type]
    trust = str(authority.trust)
    return TlsFiles(certificate=str(made.certificate), key=str(made.key), ca=trust, client_ca=trust)


def peers_of(member: str, tls: TlsFiles) -> HttpPeers:
    """The peers of a member, as a service creates them."""
    return HttpPeers(
        here_of(member), SECRETS, wall_ms, max_body_bytes=MAX_BODY_BYTES, timeouts=PATIENT, tls=tls
    )


class TestContract(PeersContract):
    """The contract of all peers, between members that show each other their certificates."""

    @pytest.fixture
    async def pair(self, authority: Authority) -> AsyncIterator[Pair]:
        own = {name: files_of(authority, name) for name in ("a", "b")}
        async with (
            serving("a", tls=own["a"]) as a,
            serving("b", tls=own["b"]) as b,
            peers_of("a", own["a"]) as to_b,
            peers_of("b", own["b"]) as to_a,
        ):
            addresses = {"a": a.address, "b": b.address, "nobody": f"https://127.0.0.1:{free_port()}"}
            yield Pair(donor=a.end, recipient=b.end, peers=to_b, back=to_a, address_of=addresses.__getitem__)


def expired(authority: Authority, name: str) -> TlsFiles:
    """The certificate has ended."""
    return files_of(authority, name, lifetime=-timedelta(days=1))


def foreign(authority: Authority, name: str) -> TlsFiles:
    """Certificate and trust are of another authority."""
    return files_of(make_authority(authority.folder / "foreign"), name)


def strange(authority: Authority, name: str) -> TlsFiles:
    """The certificate is of another authority; the trust is right."""
    own = foreign(authority, name)
    return dataclasses.replace(own, ca=str(authority.trust), client_ca=str(authority.trust))


def elsewhere(authority: Authority, name: str) -> TlsFiles:
    """The certificate is for another host."""
    return files_of(authority, name, hosts=["elsewhere.example"])


def anonymous(authority: Authority, name: str) -> TlsFiles:
    """There is no certificate."""
    return TlsFiles(ca=str(authority.trust))


@pytest.mark.parametrize(
    ("donor", "recipient", "said", "logged"),
    [
        (files_of, expired, "its certificate is refused: certificate has expired", ""),
        (files_of, foreign, f"its certificate is refused: {SELF_SIGNED}", ""),
        (files_of, elsewhere, f"its certificate is refused: {WRONG_HOST}", ""),
        (anonymous, files_of, "TLS fails: TLSV13_ALERT_CERTIFICATE_REQUIRED", "DID_NOT_RETURN_A_CERTIFICATE"),
        (expired, files_of, "TLS fails: SSLV3_ALERT_CERTIFICATE_EXPIRED", "certificate has expired"),
        (strange, files_of, "TLS fails: TLSV1_ALERT_UNKNOWN_CA", "unable to get local issuer"),
    ],
)
async def test_members_that_cannot_prove_themselves_exchange_nothing(
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    donor: Callable[[Authority, str], TlsFiles],
    recipient: Callable[[Authority, str], TlsFiles],
    said: str,
    logged: str,
) -> None:
    """The caller says why, and so does the log of the called; the handover then becomes a replay."""
    donation = Donation()
    donation.emit("k", "x")

    async with (
        serving("b", tls=recipient(authority, "b")) as b,
        peers_of("a", donor(authority, "a")) as peers,
    ):
        with pytest.raises(PeerUnavailable) as caught:
            await peers.offer(b.address, *donation.copy())

        # who is refused may learn only that the connection was closed: it has sent its request by then
        reasons = [said, CLOSED] if logged else [said]
        assert caught.value.detail in [f"{b.address} does not answer: {reason}" for reason in reasons]
        await until(lambda: logged in caplog.text, lambda: caplog.text, within_s=20)
        assert b.connections == []


async def test_a_port_with_https_tells_plain_clients_nothing(authority: Authority) -> None:
    """Neither HTTP without TLS nor control's client without a certificate gets an answer."""
    own = files_of(authority, "b")
    async with serving("b", tls=own) as b:
        async with httpx.AsyncClient(trust_env=False) as plain:
            with pytest.raises(httpx.TransportError):
                await plain.get(f"http://127.0.0.1:{b.port}/status")
        async with http_client(TlsFiles(ca=own.ca)) as stranger:
            with pytest.raises(httpx.TransportError):
                await stranger.get(f"{b.address}/status")
        async with http_client(files_of(authority, "control")) as control:
            assert (await control.get(f"{b.address}/status")).status_code == 200


async def test_control_asks_members_over_https_as_it_calls_them(authority: Authority, tmp_path: Path) -> None:
    """A member needs control's certificate, and control trusts no other authority."""
    other = make_authority(tmp_path / "other")
    async with serving("b", tls=files_of(authority, "b")) as b:
        asked = []
        own = files_of(authority, "control")
        for tls in (own, TlsFiles(ca=own.ca), dataclasses.replace(own, ca=files_of(other, "control").ca)):
            async with KeptConnections(tls) as connections:
                asked.append([await connections.get(f"{b.address}/status") is not None for _ in range(2)])

        assert asked == [[True, True], [False, False], [False, False]]


async def test_certificates_are_replaced_while_members_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each new connection uses the files as they are; half of a replacement changes nothing."""
    caplog.set_level(logging.INFO)
    old, new = make_authority(tmp_path / "old"), make_authority(tmp_path / "new")
    names = ("certificate", "key", "ca", "client_ca")

    def install(folder: Path, **sources: str) -> TlsFiles:
        folder.mkdir(exist_ok=True)
        for name, source in sources.items():
            if source:
                shutil.copy(source, folder / "unfinished")
                (folder / "unfinished").replace(folder / name)
        return TlsFiles(**{name: str(folder / name) for name in names})

    before = {name: dataclasses.asdict(files_of(old, name)) for name in "ab"}
    after = {name: dataclasses.asdict(files_of(new, name)) for name in "ab"}
    a, b = (install(tmp_path / name, **before[name]) for name in "ab")

    async def reaches(face_address: str, client: httpx.AsyncClient) -> bool:
        with contextlib.suppress(httpx.TransportError):
            # a connection of its own each time
            answer = await client.get(f"{face_address}/status", headers={"Connection": "close"})
            return answer.status_code == 200
        return False

    async with serving("b", tls=b) as face, http_client(a) as client:
        found = [await reaches(face.address, client)]
        # the key without its certificate: the old pair stays in force
        install(tmp_path / "b", key=after["b"]["key"])
        found.append(await reaches(face.address, client))
        install(tmp_path / "b", **after["b"])
        found.append(await reaches(face.address, client))
        install(tmp_path / "a", **after["a"])
        found.append(await reaches(face.address, client))
        # what is trusted no more is let in no more
        install(tmp_path / "a", **before["a"])
        found.append(await reaches(face.address, client))

    assert found == [True, True, False, True, False]
    said = [(record.getMessage(), vars(record).get("why")) for record in caplog.records]
    assert any(
        message == "certificates not loaded" and "KEY_VALUES_MISMATCH" in str(why) for message, why in said
    )
    assert any(message == "certificates loaded" for message, _ in said)


async def test_a_group_is_locked_step_by_step_and_loses_nothing(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path, authority: Authority
) -> None:
    """The steps of docs/security.md, for HTTPS and ZooKeeper at once: every member hands over live.

    A member with certificates of its own takes over by a replay.
    """
    (tmp_path / "password").write_text("secret")
    user = {
        "BATON_ZOOKEEPER_USER": "baton",
        "BATON_ZOOKEEPER_PASSWORD_FILE": str(tmp_path / "password"),
    }

    def runs(member: Joined, streams: int) -> bool:
        return len(member.running) == streams

    def of(files: TlsFiles, *names: str) -> dict[str, str]:
        given = dataclasses.asdict(files)
        return {f"BATON_TLS_{name.upper()}_FILE": given[name] for name in names or given}

    stages = {
        "trusting": of(files_of(authority, "t"), "ca") | user | {"BATON_ZOOKEEPER_ACL": "open"},
        "serving": of(files_of(authority, "s"), "ca", "certificate", "key") | user,
        "demanding": of(files_of(authority, "d")) | user,
        "demanding too": of(files_of(authority, "e")) | user,
        "foreign": of(foreign(authority, "f")) | user,
    }
    visits = Visits(random.Random(1))
    async with group(kafka, zookeeper, namespace, tmp_path, streams=2) as found:
        last = await found.join("plain")
        await found.until(lambda: len(last.running) == 2)
        live: dict[str, set[bool]] = {}
        for name, settings in stages.items():
            await found.fleet.write(visits, 300)
            joined = await found.join(name.replace(" ", "-"), **settings)
            if name != "foreign":
                await found.until(functools.partial(runs, joined, 1))
            last.stop.set()
            await found.until(functools.partial(runs, joined, 2))
            live[name] = {worker.is_warm for worker in joined.member.workers}
            last = joined
            if name == "serving":
                root = found.fleet.where.names.root
                locked = await change_acls(joined.zookeeper, root, is_locked=True)
                assert locked[True] > 0
                assert locked[False] > 0
        await found.fleet.write(visits, 300)
        await found.fleet.close_all()
        await found.end()

        assert live == {name: {name != "foreign"} for name in stages}
        assert await judge(found.fleet.where, SETTINGS, await found.fleet.where.delivered()) == []
