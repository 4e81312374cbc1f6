"""The two effects of operations: pins in ZooKeeper, and a member's signed `POST /drain`."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import msgspec
import pytest

from services.control.adapters.processes.signed_requests import SENDER, HttpDrain, SignedRequests
from services.control.adapters.znodes.pins import ZooKeeperPins
from shared.errors import Conflict, PeerUnavailable, ZooKeeperUnavailable
from shared.model.names import Names
from shared.model.secrets import Secrets
from shared.service.signing import ACCEPTED_MS, Here, digest_of, open_envelope
from shared.zookeeper.znodes import Set
from tests.fakes.coordinator import InMemoryZooKeeper, ZnodeStore

NAMES = Names()
PATH = NAMES.pins("default")
SECRETS = Secrets(signing=b"s" * 32)
AT_MS = 1_000_000


class Pins:
    """The pins of one group, two writers, and what is stored."""

    def __init__(self) -> None:
        self.store = ZnodeStore()
        self.zookeeper = InMemoryZooKeeper(self.store)
        self.other = InMemoryZooKeeper(self.store)
        self.pins = ZooKeeperPins(self.zookeeper, NAMES)

    async def add(self, stream: int, member: str) -> None:
        """Pins one more stream."""
        await self.pins.change("default", lambda pins: dict(pins) | {stream: member})

    @property
    def stored(self) -> bytes | None:
        """The znode's data."""
        znode = self.store.znodes.get(PATH)
        return znode.data if znode is not None else None


@pytest.fixture
async def pins() -> Pins:
    pins = Pins()
    await pins.zookeeper.make_path(NAMES.group("default"))
    return pins


async def test_pins_are_created_changed_and_emptied(pins: Pins) -> None:
    """The first change creates the znode; streams are in order."""
    await pins.add(10, "b")
    await pins.add(9, "a")
    both = pins.stored
    await pins.pins.change("default", lambda _: {})

    assert both == b'{"9":"a","10":"b"}'
    assert pins.stored == b"{}"


async def test_an_empty_change_writes_nothing(pins: Pins) -> None:
    """No watch fires."""
    await pins.pins.change("default", lambda _: {})
    none = pins.stored
    await pins.add(1, "a")
    await pins.add(1, "a")

    assert none is None
    assert pins.store.znodes[PATH].version == 0


async def test_concurrent_changes_both_take_effect(pins: Pins) -> None:
    """The loser of a race reads the pins again."""
    await pins.add(1, "a")
    rival = ZooKeeperPins(pins.other, NAMES)
    raced: list[bool] = []

    def change(found: object) -> dict[int, str]:
        assert isinstance(found, dict)
        if not raced:
            raced.append(pins.store.apply([_set(b'{"1":"a","2":"rival"}')], 0))
        return dict(found) | {3: "c"}

    await pins.pins.change("default", change)
    await rival.change("default", lambda found: dict(found) | {4: "d"})

    assert raced == [True]
    assert pins.stored == b'{"1":"a","2":"rival","3":"c","4":"d"}'


async def test_a_change_gives_up_after_lost_races(pins: Pins) -> None:
    """It reports a conflict instead of trying forever."""
    await pins.add(1, "a")

    def change(found: object) -> dict[int, str]:
        pins.store.apply([_set(b'{"1":"a"}')], 0)
        return {2: "b"}

    with pytest.raises(Conflict):
        await pins.pins.change("default", change)


async def test_a_lost_answer_is_resolved_by_reading_back(pins: Pins) -> None:
    """The pins are as requested, so the change has succeeded."""
    pins.zookeeper.lose_answers = 1

    await pins.add(1, "a")

    assert pins.stored == b'{"1":"a"}'


async def test_a_lost_request_is_reported(pins: Pins) -> None:
    """The pins are unchanged; the operator may try again."""
    pins.zookeeper.lose_requests = 1

    with pytest.raises(ZooKeeperUnavailable):
        await pins.add(1, "a")

    assert pins.stored is None


async def test_unreadable_pins_are_replaced(pins: Pins) -> None:
    """All readers treat them as none."""
    await pins.zookeeper.create(PATH, b"nonsense")

    await pins.add(1, "a")

    assert pins.stored == b'{"1":"a"}'


class Member:
    """A member's HTTP face that makes the same answer for each request, and keeps requests in `asked`."""

    def __init__(self, answer: Callable[[], httpx.Response]) -> None:
        self.answer = answer
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        return self.answer()

    async def drain(self) -> None:
        """Sends it the request to drain."""
        http = httpx.AsyncClient(transport=httpx.MockTransport(self))
        drain = HttpDrain(SignedRequests(http, _secrets, "x", wall_ms=lambda: AT_MS))
        await drain.drain("default", "m1", "http://m1:8010", "drained by an operator")


async def test_the_request_to_drain_is_signed() -> None:
    """With its body and its recipient; it goes to the member's registered address."""
    member = Member(lambda: httpx.Response(202))

    await member.drain()

    (request,) = member.asked
    here = Here(member="m1", namespace="x", group="default")
    signed = open_envelope(SECRETS, here, "POST", "/drain", request.headers, now_ms=AT_MS + ACCEPTED_MS)
    assert str(request.url) == "http://m1:8010/drain"
    assert (signed.sender, signed.digest, signed.length) == (
        SENDER,
        digest_of(request.content),
        len(request.content),
    )
    assert msgspec.json.decode(request.content) == {"why": "drained by an operator"}


def _refuse() -> httpx.Response:
    raise httpx.ConnectError("connection refused")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: httpx.Response(403, json={"detail": "a wrong signature"}), "drain: a wrong signature"),
        (lambda: httpx.Response(500, content=b"<html>"), "drain: it answers 500"),
        (lambda: httpx.Response(307, headers={"location": "http://elsewhere/"}), "drain: it answers 307"),
        (_refuse, "answer: connection refused"),
    ],
)
async def test_a_refusal_is_reported_in_the_members_words(
    answer: Callable[[], httpx.Response], words: str
) -> None:
    """Any answer but success is a refusal, silence is an error; a redirect is not followed."""
    member = Member(answer)

    with pytest.raises(PeerUnavailable, match=f"m1 does not {words}"):
        await member.drain()

    assert len(member.asked) == 1


async def _secrets() -> Secrets:
    return SECRETS


def _set(data: bytes) -> Set:
    return Set(PATH, data)
