"""One request of a fuzz run, drawn from its seed: its bytes, its pieces, and the state of the sink."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

from tests.fuzz.attacks import attack_of
from tests.fuzz.bodies import MAX_DECODED_BYTES, body_of, bomb, decoded, encoded
from tests.fuzz.mutations import Header, mutated_body, mutated_headers
from tests.unit.producer.face import TABLE

DOORS = ("usual", "usual", "narrow", "guarded")
KEY = b"open-sesame"
"""The write key of the guarded door."""
ATTACKS = 0.01
"""The share of requests that are as expensive as possible."""
PATHS = ("/markers", "/markers", "/fragments/", "/", "/table", "/fragments/x", "/readyz", "/nothing", "/\x00")
METHODS = ("GET", "PUT", "OPTIONS", "HEAD", "DELETE", "PATCH", "get", "BREW", "")
QUERIES = (
    b"write_key=nobody",
    b"write_key=%ff%00",
    b"write_key",
    b"\xff=\xff",
    b"&&=",
    b"write_key=a&write_key=b",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A request; `plain` is its decoded body, if that is known.

    `must_accept`: if the whole request is valid, how many fragments it has. `is_gone`: the client disconnects
    before the end. `is_keyed`: it carries the right write key. `is_down`, `mute`: see InMemoryFragmentSink.
    """

    seed: int
    door: str
    method: str
    path: str
    query: bytes
    headers: list[Header]
    pieces: list[bytes]
    plain: bytes | None
    must_accept: int | None
    is_gone: bool
    is_keyed: bool
    is_down: bool
    mute: frozenset[int]

    @property
    def size(self) -> int:
        """Bytes that the door has to work on, on the wire or decoded, up to its limit."""
        decoded = MAX_DECODED_BYTES if self.plain is None else len(self.plain)
        return min(max(sum(map(len, self.pieces)), decoded), MAX_DECODED_BYTES)

    def __repr__(self) -> str:
        body = b"".join(self.pieces)
        shown = repr(body) if len(body) < 2_000 else f"{body[:1_000]!r} … {len(body)} bytes"
        return (
            f"seed {self.seed}: {self.method} {self.path!r}?{self.query!r} to the {self.door} door, "
            f"{self.headers}, in {len(self.pieces)} pieces{', then gone' * self.is_gone}"
            f"{', Kafka down' * self.is_down}{f', mute {sorted(self.mute)}' if self.mute else ''}\n{shown}"
        )


def post_of(seed: int) -> Post:
    """The request of this seed."""
    dice = random.Random(seed)
    body, media_type, count = body_of(dice)
    encoding = dice.choice((b"", b"", b"", b"gzip", b"zstd"))
    mutation = dice.random()
    plain: bytes | None = mutated_body(dice, body) if mutation < 0.65 else body
    wire = encoded(plain or b"", encoding)
    if 0.6 < mutation < 0.7 and encoding:
        wire = mutated_body(dice, wire)
        plain = decoded(wire, encoding)
    if mutation > 0.999:
        encoding, plain = dice.choice((b"gzip", b"zstd")), None
        wire = bomb(encoding)
    if 0.7 < mutation < 0.7 + ATTACKS:
        wire, encoding, plain, media_type = attack_of(dice)
    door, query = dice.choice(DOORS), dice.choice(QUERIES) if dice.random() < 0.05 else b""
    is_keyed = dice.random() < 0.8
    headers = [(b"content-type", media_type)]
    if door == "guarded" and is_keyed:
        headers, query = _with_key(dice, headers)
    headers += [(b"content-encoding", encoding)] if encoding else []
    headers += [(b"content-length", b"%d" % len(wire))] if dice.random() < 0.5 else []
    is_lying, is_gone, is_elsewhere = dice.random() < 0.2, dice.random() < 0.02, dice.random() < 0.03
    if is_lying:
        headers = mutated_headers(dice, headers)
    if [value for name, value in headers if name == b"content-encoding"] != [encoding] * bool(encoding):
        plain = None
    return Post(
        seed=seed,
        door=door,
        method=dice.choice(METHODS) if is_elsewhere else "POST",
        path=dice.choice(PATHS) if is_elsewhere and dice.random() < 0.7 else "/fragments",
        query=query,
        headers=headers,
        pieces=_pieces(dice, wire),
        plain=plain,
        must_accept=count
        if mutation > 0.7 + ATTACKS and plain is not None and not (is_lying or is_elsewhere)
        else None,
        is_gone=is_gone,
        is_keyed=is_keyed,
        is_down=dice.random() < 0.02,
        mute=frozenset(dice.sample(range(TABLE.count), 6)) if dice.random() < 0.05 else frozenset(),
    )


def _with_key(dice: random.Random, headers: list[Header]) -> tuple[list[Header], bytes]:
    """The headers and a query, with the right key in one of the three places."""
    place = dice.randrange(3)
    if place == 0:
        return headers, b"write_key=" + KEY
    key = (b"authorization", b"Bearer " + KEY) if place == 1 else (b"x-write-key", KEY)
    return [*headers, key], b""


def _pieces(dice: random.Random, wire: bytes) -> list[bytes]:
    """The body as it may arrive: whole, or in pieces, some of which are empty."""
    if dice.random() < 0.6:
        return [wire]
    cuts = sorted(dice.randrange(len(wire) + 1) for _ in range(dice.choice((0, 1, 2, 7, 40))))
    return [wire[first:end] for first, end in itertools.pairwise([0, *cuts, len(wire)])]
