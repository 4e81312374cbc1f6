"""The whole judgement on random logs: honest deliveries have no fault, planted faults have a number each."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import get_args

import msgspec
import pytest

from services.control.spark.audit.judging import MOST_EXAMPLES, Ground, judge_rows
from services.control.spark.audit.outcome import NEVER, verdict_of
from services.control.spark.audit.routing import SLOTS
from services.control.spark.audit.verdict import KeyVerdict
from shared.model.routing import slot_for
from tests.logs import SETTINGS
from tests.unit.control.spark.audit.judged import End, World, world

SEEDS = range(20)
FAULTS = ("missing", "overdue", "duplicates", *NEVER)


def faults(sums: Counter[str]) -> dict[str, int]:
    """The numbers of differences that are not 0, without those of keys that are in both streams."""
    return {name: sums[name] for name in FAULTS if sums[name] and name != "split_keys"}


def altered(value: bytes, **fields: object) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(value) | fields)


def picked(one: World, seed: int) -> int:
    """An offset in the topic that holds a session which a record has closed for certain."""
    ended = [at for at, (_, value) in enumerate(one.topic) if one.ends[value] == "end"]
    return random.Random(seed).choice(ended)


def drop(one: World, at: int) -> None:
    """Another session takes its place."""
    key, value = one.topic[at]
    one.topic[at] = key, altered(value, first_offset=10**6 + at, id=f"{at:032}")


def double(one: World, at: int) -> None:
    one.topic.append(one.topic[at])


def alter(one: World, at: int) -> None:
    key, value = one.topic[at]
    one.topic[at] = key, altered(value, bytes=10**6)


def move(one: World, at: int) -> None:
    """Into the other stream."""
    key, value = one.topic[at]
    one.topic[at] = key, altered(value, stream=1 - msgspec.json.decode(value)["stream"])


def withhold(one: World, at: int) -> None:
    """Nobody sees that there is a session."""
    del one.topic[at]


PLANTED: dict[Callable[[World, int], None], tuple[str, ...]] = {
    drop: ("lost", "extra"),
    double: ("extra",),
    alter: ("different",),
    move: ("lost", "extra"),
    withhold: ("lost",),
}
"""Each fault with its numbers; what is lost is missing, or overdue if only silence has ended it."""


@pytest.mark.parametrize("plant", PLANTED)
def test_every_planted_fault_is_found_whatever_has_ended_the_session(
    plant: Callable[[World, int], None],
) -> None:
    """A fragment that says so, a fragment that splits, a marker, silence alone, or a limit: one of each."""
    seen: Counter[End] = Counter()
    for seed in SEEDS[:8]:
        one = world(seed)
        by_end = {one.ends[value]: at for at, (_, value) in enumerate(one.topic)}
        # from the last one on, because a session that is withheld moves those behind it
        for at in sorted(by_end.values(), reverse=True):
            plant(one, at)
        one.fill_table()

        sums, _ = one.audit()

        lost = {"overdue": by_end.keys() & {"silence"}, "missing": by_end.keys() - {"silence"}}
        expected = {kind: len(by_end) for kind in PLANTED[plant] if kind != "lost"}
        expected |= {kind: len(ends) for kind, ends in lost.items() if ends and "lost" in PLANTED[plant]}
        assert faults(sums) == expected, seed
        assert verdict_of({**sums, "split_keys": 0}, "exactly_once") == "differs"
        seen.update(by_end)
    assert set(seen) == set(get_args(End))


@pytest.mark.parametrize("seed", SEEDS)
def test_an_honest_delivery_has_no_fault(seed: int) -> None:
    """Whatever the log holds: every session is judged, here and in the table."""
    one = world(seed)

    sums, _ = one.audit()

    assert faults(sums) == {}
    assert sums["judged"] == sums["delivered"] == sums["lake_judged"] == len(one.topic) > 0
    assert verdict_of({**sums, "split_keys": 0}, "exactly_once") == "exact"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_session_that_is_dropped_is_missing(seed: int) -> None:
    """In the topic alone: the table holds it, and then the topic does not have what the table has."""
    one = world(seed)
    at = picked(one, seed)
    key, value = one.topic[at]
    # another group's record takes its place, so that the offsets stay
    one.topic[at] = key, altered(value, first_offset=10**6, id="0" * 32)

    sums, examples = one.audit()

    expected = {"missing": 1, "extra": 1, "lake_missing": 1, "lake_extra": 1}
    assert faults(sums) == expected
    assert {key for kind, key in examples if kind in expected} == {one.topic[at][0].decode()}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("delivery", "found"), [("exactly_once", {"extra": 2}), ("at_least_once", {"duplicates": 2})]
)
def test_a_session_that_is_doubled_is_extra_unless_that_is_promised(
    seed: int, delivery: str, found: dict[str, int]
) -> None:
    """Every further copy counts; the table holds the session once all the same."""
    one = world(seed, settings=msgspec.structs.replace(SETTINGS, delivery=delivery))
    one.topic += [one.topic[picked(one, seed)]] * 2

    assert faults(one.audit()[0]) == found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "field", ["last_offset", "first_time", "last_time", "opened_at", "closed_at", "bytes", "reason"]
)
def test_a_session_that_is_altered_is_different(seed: int, field: str) -> None:
    """In the topic, and so is the table's row, which holds it as it was."""
    one = world(seed)
    at = picked(one, seed)
    key, value = one.topic[at]
    one.topic[at] = key, altered(value, **{field: "gap" if field == "reason" else 10**9})

    assert faults(one.audit()[0]) == {"different": 1, "lake_different": 1}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ahead_ms", [-1, 1])
def test_a_session_cannot_have_closed_before_its_last_fragment_or_after_what_closed_it(
    seed: int, ahead_ms: int
) -> None:
    """Whatever ended it. Silence may have closed it at any moment between the two."""
    one = world(seed)
    at = random.Random(seed).randrange(len(one.topic))
    key, value = one.topic[at]
    session = msgspec.json.decode(value)
    log = one.logs[session["stream"]]
    until = len(log) if ahead_ms > 0 else session["last_offset"] + 1
    a = max(record.timestamp for record in log[:until])
    one.topic[at] = key, altered(value, closed_at=a + ahead_ms)
    one.table[at] = at, one.topic[at][1]

    assert faults(one.audit()[0]) == {"different": 1}


@pytest.mark.parametrize("seed", SEEDS)
def test_one_wrong_closing_time_hides_no_session_where_retention_has_cut_the_topic(seed: int) -> None:
    """The lowest time of all sessions that are left says what retention may have removed."""
    one = world(seed, streams=1)
    one.removed = len(one.topic) // 4
    honest, _ = one.audit()
    key, value = one.topic[one.removed]
    one.topic[one.removed] = key, altered(value, closed_at=2**52)
    sessions = [msgspec.json.decode(value) for _, value in one.topic]
    second = sessions[one.removed + 1]["closed_at"]
    later = range(one.removed + 2, len(one.topic))
    gone = {at for at in later if sessions[at]["reason"] == "end" and sessions[at]["closed_at"] > second}
    one.topic = [record for at, record in enumerate(one.topic) if at not in gone]
    one.table, one.table_position = [], 0

    sums, _ = one.audit()

    assert faults(honest) == {}
    assert honest["not_judged"] > 0
    assert faults(sums) == {"missing": len(gone), "different": 1}


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_that_are_removed_from_the_table_are_missing_there(seed: int) -> None:
    """Below its position; above it, the table has not come so far yet."""
    one = world(seed)
    draw = random.Random(seed)
    gone = draw.sample(range(len(one.table)), 2)
    one.table = [row for at, row in enumerate(one.table) if at not in gone]
    one.table_position = draw.randrange(len(one.topic) + 1)

    due = sum(1 for at in gone if at < one.table_position)
    assert faults(one.audit()[0]) == ({"lake_missing": due} if due else {})


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_that_are_altered_or_added_in_the_table_are_found_there(seed: int) -> None:
    """A row with another byte in a fragment, with another column, twice, and one that nobody delivered."""
    one = world(seed)
    first, second, third, fourth = random.Random(seed).sample(range(len(one.table)), 4)
    at, value = one.table[first]
    data = msgspec.json.decode(value)["data"]
    one.table[first] = at, altered(value, data=[*data[:-1], data[-1] | {"data": "another"}])
    at, value = one.table[second]
    one.table[second] = at, altered(value, epoch=9)
    one.table.append(one.table[third])
    at, value = one.table[fourth]
    one.table.append((at, altered(value, id="f" * 32)))

    sums, examples = one.audit()

    assert faults(sums) == {"lake_different": 2, "lake_duplicated": 1, "lake_extra": 1}
    assert {kind for kind, _ in examples} - {"split_keys"} == {
        "lake_different",
        "lake_duplicated",
        "lake_extra",
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_every_fragment_in_a_wrong_stream_counts(seed: int) -> None:
    """By the stream table; a key in two streams is found without it."""
    one = world(seed)
    keys = [{record.key for record in log if record.key and record.value != b"poison"} for log in one.logs]
    one.owners = [0] * SLOTS
    one.owners[slot_for(b"k0")] = 1

    sums, examples = one.audit()

    assert sums["split_keys"] == len(keys[0] & keys[1])
    wrong = Counter(
        (stream, record.key)
        for stream, log in enumerate(one.logs)
        for record in log
        if record.key and record.value != b"poison" and stream != (record.key == b"k0")
    )
    assert sums["misrouted"] == wrong.total()
    found = [key for kind, key in examples if kind == "misrouted"]
    assert found == sorted(key.decode() for _, key in wrong)[:MOST_EXAMPLES]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_verdict_does_not_depend_on_the_batches_that_are_read(seed: int) -> None:
    """A row holds the fragments of a key in one batch, but sessions are judged as if each had its own."""
    one = world(seed)
    key, value = one.topic[picked(one, seed)]
    one.topic.append((key, value))
    one.topic[0] = one.topic[0][0], altered(one.topic[0][1], last_offset=10**6)
    one.table = one.table[1:]

    found = []
    for batch in (1, 9, 1000):
        one.batch = batch
        found.append(one.audit())

    assert found[0] == found[1] == found[2]
    assert set(faults(found[0][0])) >= {"extra", "different", "lake_missing"}


def test_losses_of_at_most_once_are_counted_and_permitted() -> None:
    """They are missing, and the verdict says that the delivery permits it."""
    one = world(1, settings=msgspec.structs.replace(SETTINGS, delivery="at_most_once"))
    del one.topic[picked(one, 1)]
    one.table = []
    one.table_position = 0

    sums, _ = one.audit()

    assert faults(sums) == {"missing": 1}
    assert verdict_of({**sums, "split_keys": 0}, "at_most_once") == "within the promise of at_most_once"


@pytest.mark.parametrize("batch", [9, 1000])
def test_delivered_sessions_of_a_hot_key_are_not_held(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    """At any time a key holds those of its open session and of the next fragment, however many there are."""
    held = []
    feed = KeyVerdict.feed

    def watched(self: KeyVerdict, line: object) -> object:
        held.append(sum(map(len, self._copies.values())))
        return feed(self, line)  # type: ignore[arg-type]

    monkeypatch.setattr(KeyVerdict, "feed", watched)
    one = world(3, streams=1, length=3000, batch=batch)

    sums, _ = one.audit()

    assert sums["judged"] > 300
    assert max(held) <= 2


def test_an_audit_of_nothing_has_no_numbers() -> None:
    """An empty task of Spark judges no row."""
    (batch,) = judge_rows(iter([]), Ground(group="g", settings=SETTINGS))

    assert [row for row in batch.to_pylist() if row["n"]] == []
