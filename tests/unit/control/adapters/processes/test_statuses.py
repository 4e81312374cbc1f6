"""Members are asked over HTTP, and no answer of theirs can harm control."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from services.control.adapters.processes.statuses import HttpMembers
from shared.model.cluster import MemberNode

NODES = {("default", name): MemberNode(address=f"http://{name}:1") for name in ("m0", "m1")}


def status_of(member: str) -> dict[str, Any]:
    """A status as members send it, with fields that control does not know."""
    return {
        "id": member,
        "group": "default",
        "state": "active",
        "lease_ms": 3999.5,
        "zookeeper_session": None,
        "rates": {"fragments_per_s": 1.5, "bytes_per_s": 2, "sessions_per_s": 0},
        "streams": [{"stream": 3, "epoch": 2, "state": "opening", "position": -1, "novelty": [1]}],
    }


class Peers:
    """The members; `answers` overrides the answers of one of them."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes | None] = {}
        self.asked: list[str] = []
        self.source = HttpMembers(self.ask)

    async def ask(self, url: str) -> bytes | None:
        where = urlsplit(url)
        member = str(where.hostname)
        self.asked.append(f"{member}{where.path}")
        if member in self.answers:
            return self.answers[member]
        if where.path == "/plan":
            moves = [{"stream": 3, "from": "m0", "to": "m1", "why": "spread"}]
            return msgspec.json.encode({"moves": moves, "quota": {"m0": 1, "m1": 1}})
        return msgspec.json.encode(status_of(member))


@pytest.fixture
def peers() -> Peers:
    return Peers()


async def test_statuses_and_one_plan_are_read(peers: Peers) -> None:
    """Every member is asked for its status, and one of them for the plan."""
    answers = await peers.source.read(NODES)

    assert set(answers.statuses) == set(NODES)
    assert answers.statuses["default", "m0"].streams[0].stream == 3
    member, plan = answers.plans["default"]
    assert (member, plan.quota) == ("m0", {"m0": 1, "m1": 1})
    assert (plan.moves[0].from_, plan.moves[0].to) == ("m0", "m1")
    assert peers.asked.count("m0/plan") == 1
    assert "m1/plan" not in peers.asked


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(None, id="none"),
        pytest.param(b"<html>", id="not JSON"),
        pytest.param(b'{"id": "m1", "group": 5}', id="wrong type"),
        pytest.param(msgspec.json.encode(status_of("m7")), id="another member's"),
    ],
)
async def test_a_member_with_a_bad_answer_is_silent(peers: Peers, answer: bytes | None) -> None:
    """It keeps its last status while it is registered; the other member is not affected."""
    before = await peers.source.read(NODES)
    peers.answers["m1"] = answer
    during = await peers.source.read(NODES)
    after = await peers.source.read({("default", "m0"): NODES["default", "m0"]})

    assert before.silent == frozenset()
    assert during.silent == {("default", "m1")}
    assert set(during.statuses) == set(NODES)
    assert set(after.statuses) == {("default", "m0")}


async def test_the_plan_comes_from_an_active_member_that_answers(peers: Peers) -> None:
    """Draining and silent members are not asked for the plan."""
    peers.answers["m0"] = None
    nodes = NODES | {("default", "a"): MemberNode(address="http://a:1", state="draining")}

    answers = await peers.source.read(nodes)

    assert answers.plans["default"][0] == "m1"


async def test_without_members_nothing_is_asked(peers: Peers) -> None:
    """Then there are neither statuses nor plans."""
    answers = await peers.source.read({})

    assert (answers.statuses, answers.plans, peers.asked) == ({}, {}, [])
