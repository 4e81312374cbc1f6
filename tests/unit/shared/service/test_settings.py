"""Settings: conversion, checks, and the report of all faults at once."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from services.consumer.settings import ConsumerSettings
from shared.errors import SettingsInvalid
from shared.service.service_settings import ServiceSettings
from shared.service.settings import at_least, between, describe, load, one_of, setting

ROOT = Path(__file__).parents[4]
AT_START = """
import sys
from shared.service.runtime import main
from shared.service.service_settings import ServiceSettings
async def serve(settings, stop): pass
sys.exit(main("example", ServiceSettings, serve))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Some settings."""

    count: int = setting(3, "how many", between(1, 10, "too many do harm"))
    share: float = setting(0.5, "how much", between(0, 1))
    mode: str = setting("slow", "which", one_of("slow", "fast"))
    limit: int | None = setting(None, "none for no limit", at_least(1))
    token: str = setting("", "kept to itself", secret=True)
    place: str = setting(lambda: "here", "where")

    def check(self) -> list[str]:
        """A relation."""
        return (
            ["BATON_COUNT=9 is too much for BATON_MODE=slow"]
            if (self.count, self.mode) == (9, "slow")
            else []
        )


def test_values_are_converted_from_text() -> None:
    """Missing and empty values become the default."""
    found = load(Example, {"BATON_COUNT": "7", "BATON_SHARE": "1", "BATON_LIMIT": "", "OTHER": "x"})

    assert found == Example(count=7, share=1.0, limit=None, place="here")


def test_all_faults_are_reported_at_once() -> None:
    """So that one attempt is enough to fix them."""
    mapping = {"BATON_COUNT": "eleven", "BATON_SHARE": "nan", "BATON_MODE": "medium", "BATON_LIMIT": "0"}

    with pytest.raises(SettingsInvalid) as rejected:
        load(Example, mapping)

    assert rejected.value.faults == [
        "BATON_COUNT='eleven': not a whole number",
        "BATON_SHARE='nan': must be at least 0",
        "BATON_MODE='medium': must be one of slow, fast",
        "BATON_LIMIT='0': must be at least 1",
    ]


def test_a_fault_explains_the_range() -> None:
    """It says what goes wrong outside."""
    with pytest.raises(SettingsInvalid, match=r"must be at most 10 \(too many do harm\)"):
        load(Example, {"BATON_COUNT": "11"})


def test_relations_are_checked_once_all_values_are_valid() -> None:
    """Before that they would only confuse."""
    with pytest.raises(SettingsInvalid, match="too much for"):
        load(Example, {"BATON_COUNT": "9"})


def test_secrets_are_hidden() -> None:
    """The output of `--print-config` ends up in logs."""
    rows = {row.variable: row.value for row in describe(Example(token="hush"))}

    assert rows["BATON_TOKEN"] == "(secret)"
    assert rows["BATON_COUNT"] == "3"
    assert "hush" not in repr(Example(token="hush"))


def test_the_fault_of_a_secret_does_not_reveal_it() -> None:
    """Faults end up in logs too."""
    with pytest.raises(SettingsInvalid) as rejected:
        load(ConsumerSettings, {"BATON_SECRET": "hush"})

    assert rejected.value.faults == ["BATON_SECRET has less than 16 bytes: it can be guessed"]


def test_settings_of_a_consumer_that_contradict_each_other_are_rejected() -> None:
    """Names that would break a path, and a session without room for a fragment."""
    mapping = {"BATON_GROUP": "A b", "BATON_MEMBER": "a/b", "BATON_MAX_SESSION_BYTES": "20000"}

    with pytest.raises(SettingsInvalid) as unrelated:
        load(ConsumerSettings, mapping)

    assert len(unrelated.value.faults) == 3


def test_a_start_with_two_replicas_says_that_a_broker_down_stops_writing() -> None:
    """Two replicas look like safety, but an acknowledgement needs both."""
    done = subprocess.run(
        [sys.executable, "-c", AT_START],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "BATON_REPLICATION": "2"},
        capture_output=True,
        text=True,
        check=True,
    )

    (line,) = map(json.loads, done.stderr.splitlines())
    assert (line["level"], line["message"]) == ("WARNING", "settings remark")
    assert "one broker down stops writing" in line["why"]
    assert [ServiceSettings(replication=n).remarks() for n in (1, 3)] == [[], []]


def test_idle_defaults_to_gap_plus_lateness() -> None:
    """So a fragment that is merely late does not come too late."""
    found = load(ConsumerSettings, {"BATON_GAP_MS": "1000", "BATON_LATENESS_MS": "200"})

    assert found.group_settings.idle_ms == 1200


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        ({"BATON_HOST": "127.0.0.1", "BATON_PORT": "8010"}, "http://127.0.0.1:8010"),
        ({"BATON_HOST": "::1", "BATON_PORT": "8010"}, "http://[::1]:8010"),
        ({"BATON_HOST": "0.0.0.0", "BATON_PORT": "8010"}, f"http://{socket.gethostname()}:8010"),
        ({"BATON_HOST": "::", "BATON_PORT": "8010"}, f"http://{socket.gethostname()}:8010"),
        ({"BATON_HOST": "0.0.0.0", "BATON_ADVERTISE": "https://baton.example/"}, "https://baton.example"),
    ],
)
def test_the_published_address_is_reachable(environment: dict[str, str], address: str) -> None:
    """A service on all interfaces publishes the machine's name, unless it advertises a URL."""
    settings = load(ServiceSettings, environment)

    assert settings.address == address
