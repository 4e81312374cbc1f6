"""Control's lists as tables and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.main import cli
from tests.unit.cli.fake_services import InMemoryControl, baton, served

STREAMS: list[dict[str, Any]] = [
    {
        "stream": n,
        "owner": "consumer-0" if n < 2 else None,
        "epoch": 3,
        "state": "running" if n < 2 else "unowned",
        "position": 40,
        "end": 42,
        "lag": 2,
        "safe_offset": 30,
        "open_sessions": 1,
        "state_bytes": 1234567,
        "status": "OK",
        "failures": 3 * (n == 1),
        "why": "no answer" * (n == 1),
    }
    for n in range(3)
]
MEMBERS = [
    {
        "id": "consumer-0",
        "address": "http://127.0.0.1:8010",
        "pid": 4711,
        "state": "active",
        "streams": [0, 1],
        "rates": {"fragments_per_s": 12.5, "sessions_per_s": 0.5},
        "lease_ms": 4000.4,
        "zookeeper_session": "0x1",
        "answers": True,
    },
    {
        "id": "consumer-1",
        "address": "http://127.0.0.1:8011",
        "pid": 4712,
        "state": "active",
        "streams": [],
        "rates": {},
        "lease_ms": None,
        "answers": False,
    },
]
ANSWERS: dict[str, Any] = {
    "/streams": {"streams": STREAMS, "totals": {"streams": 3, "lag": 6, "open_sessions": 3, "sessions": 17}},
    "/members": {"members": MEMBERS},
    "/producers": {"producers": [{"id": "p", "address": "http://127.0.0.1:8001", "pid": 4713, "since": 1}]},
    "/groups": {
        "groups": [
            {
                "name": "default",
                "settings": {"gap_ms": 1_800_000, "lateness_ms": 300_000, "delivery": "exactly_once"},
                "members": ["consumer-0", "consumer-1"],
                "streams": 3,
                "lag": 6,
            }
        ]
    },
    "/plan": {
        "group": "default",
        "computed_by": "consumer-0",
        "moves": [{"stream": 2, "from": None, "to": "consumer-1", "why": "has no owner"}],
        "quota": {"consumer-0": 2, "consumer-1": 1},
        "pins": {"2": "consumer-1"},
    },
}


def run(control: InMemoryControl, *arguments: str) -> Result:
    return baton(control.answer, *arguments)


@pytest.mark.parametrize(
    ("command", "cells"),
    [
        ("streams", ["consumer-0", "running", "unowned", "1,234,567", "17 sessions delivered"]),
        ("members", ["consumer-1", "http://127.0.0.1:8010", "0-1", "12.50", "does not answer"]),
        ("producers", ["http://127.0.0.1:8001", "4713"]),
        ("groups", ["default", "exactly_once", "1,800,000"]),
        ("plan", ["has no owner", "Quota: consumer-0 2, consumer-1 1", "Pinned: 2 to consumer-1"]),
    ],
)
def test_a_list_is_a_table_for_people_and_controls_own_json_for_machines(
    command: str, cells: list[str]
) -> None:
    """`-o json` prints control's answer, nothing else."""
    control = InMemoryControl(ANSWERS)

    table = run(control, command)
    machine = run(control, command, "-o", "json")

    assert table.exit_code == machine.exit_code == 0
    assert [cell for cell in cells if cell not in table.output] == []
    assert json.loads(machine.stdout) == ANSWERS[f"/{command}"]


def test_a_stream_that_fails_is_named_with_the_reason() -> None:
    """The state alone does not tell an operator what to repair."""
    lines = run(InMemoryControl(ANSWERS), "streams").output.splitlines()

    assert [line for line in lines if "failed" in line] == [
        "stream 1 is running (failed 3 times in a row): no answer"
    ]


def test_lag_has_kafkas_columns_in_kafkas_order() -> None:
    """Readers and scripts that know kafka-consumer-groups can use it."""
    table = run(InMemoryControl(ANSWERS), "lag", "--namespace", "x")

    lines = [line for line in table.output.splitlines() if line.strip() and "─" not in line]
    assert [" ".join(line.split()) for line in lines] == [
        "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID",
        "default x.fragments.0000 0 40 42 2 consumer-0-0x1 127.0.0.1 consumer-0",
        "default x.fragments.0001 0 40 42 2 consumer-0-0x1 127.0.0.1 consumer-0",
        "default x.fragments.0002 0 40 42 2 - - -",
    ]


def test_a_lag_that_is_not_known_is_a_dash() -> None:
    """In the row and in the sum, but no 0: a log without a leader has no end."""
    unread = {**STREAMS[0], "end": None, "lag": None, "status": None}
    totals = {**ANSWERS["/streams"]["totals"], "lag": None}
    control = InMemoryControl(ANSWERS | {"/streams": {"streams": [unread], "totals": totals}})

    lags, streams = (run(control, command).output.strip().splitlines() for command in ("lag", "streams"))

    assert lags[-1].split()[3:6] == ["40", "-", "-"]
    assert streams[-1].startswith("3 streams, lag -, ")


def test_lag_as_json_has_the_same_names_in_lower_case() -> None:
    """The list is an object with one array."""
    answer = json.loads(run(InMemoryControl(ANSWERS), "lag", "-o", "json").stdout)

    names = "group topic partition current_offset log_end_offset lag consumer_id host client_id"
    values = ["default", "fragments.0002", 0, 40, 42, 2, None, None, None]
    assert answer["lag"][2] == dict(zip(names.split(), values, strict=True))


def test_the_environment_can_hold_the_address_of_control() -> None:
    """`BATON_URL` is the default of `--url`."""
    with served(InMemoryControl(ANSWERS).answer) as url:
        result = CliRunner().invoke(cli, ["producers"], env={"BATON_URL": url})

    assert result.exit_code == 0


def test_empty_lists_are_tables_without_rows() -> None:
    """No command fails on a group without streams and members."""
    none = {"streams": 0, "lag": 0, "open_sessions": 0, "sessions": 0}
    answers: dict[str, Any] = {f"/{name}": {name: []} for name in ("members", "producers", "groups")}
    answers["/streams"] = {"streams": [], "totals": none}
    answers["/plan"] = {"moves": [], "quota": {}, "pins": {}}

    for command in ("streams", "members", "producers", "groups", "lag", "plan"):
        result = run(InMemoryControl(answers), command)
        assert result.exit_code == 0, result.output
    assert result.output == "Nothing would move.\nQuota: no members\n"
