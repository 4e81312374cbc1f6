"""A table of open sessions is an ordered dict, whichever of its parts hold the sessions."""

from __future__ import annotations

import random
from collections import OrderedDict

import pytest

from services.consumer.core.sessions import open_table
from services.consumer.core.sessions.open_table import OpenTable
from services.consumer.core.sessions.state import OpenSession
from tests.effort import effort
from tests.logs import difference
from tests.unit.consumer.core.test_bundle import lost_in_transit


def assert_equal(table: OpenTable, model: OrderedDict[str, OpenSession], key: str) -> None:
    """Whether the table shows what the ordered dict does, from every side."""
    in_order = list(model.values())
    assert list(table.values()) == in_order
    assert list(table.newest_first()) == in_order[::-1]
    assert list(table) == list(model)
    assert table.oldest() is next(iter(in_order), None)
    assert len(table) == len(model)
    assert (key in table, table.get(key)) == (key in model, model.get(key))
    assert all(table[key] is session for key, session in model.items())
    assert sorted(table.keys()) == sorted(model)
    assert {*table.unordered()} == {*in_order}
    assert list(open_table.in_order(table.runs())) == in_order


@pytest.mark.parametrize("first", [0, 1, 7, 1_000])
def test_a_table_is_an_ordered_dict_whatever_its_parts(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any fragments that open, extend and close sessions."""
    monkeypatch.setattr(open_table, "FIRST", first)
    monkeypatch.setattr(open_table, "PARTS", 4)
    rng = random.Random(first)
    table, model = OpenTable(), OrderedDict[str, OpenSession]()
    for offset in range(effort(600)):
        key = f"k{rng.randrange(30)}"
        if key not in model:
            model[key] = OpenSession(key, offset, 0, 0, 0, 0)
            table.add(model[key])
        elif rng.random() < 0.4:
            assert table.pop(key) is model.pop(key)
            assert table.pop(key) is None
        else:
            table.move_to_end(key)
            model.move_to_end(key)
            model[key].last_offset = offset
        assert_equal(table, model, f"k{rng.randrange(30)}")


def test_no_part_of_a_growing_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python rebuilds in one step has a bounded share of the sessions; the fold adds like `add`."""
    monkeypatch.setattr(open_table, "FIRST", 100)

    table = OpenTable(OpenSession(f"visitor-{n}", n, 0, 0, 0, 0) for n in range(6_400))

    sizes = sorted({id(part): len(part) for part, _ in map(table.find, table)}.values())
    assert sizes[-1] < 250
    assert sizes[-1] > 1.5 * sizes[1]  # parts of equal sizes would be rebuilt at the same time


def test_many_parts_change_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners that come, go, park and hand over deliver what one fold would have, from divided tables too."""
    monkeypatch.setattr(open_table, "FIRST", 2)
    monkeypatch.setattr(open_table, "PARTS", 3)

    assert [seed for seed in range(effort(300)) if difference(seed)] == []
    assert [seed for seed in range(effort(100)) if lost_in_transit(seed)] == []
