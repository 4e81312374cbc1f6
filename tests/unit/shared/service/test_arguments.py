"""The command line of a service: help, the settings in force, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.stack.options import SERVICES
from services.control.spark.driver import __main__ as driver
from shared.service.known_settings import misspelt
from shared.service.settings import describe

ROOT = Path(__file__).parents[4]


def run(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The process, which must end by itself."""
    argv = [sys.executable, "-m", module, *arguments]
    return subprocess.run(
        argv,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("service", SERVICES)
def test_help_lists_the_settings_with_their_defaults(service: str) -> None:
    """Even when a setting is invalid; nothing starts."""
    answer = run(f"services.{service}", "--help", BATON_PORT="none")

    assert (answer.returncode, answer.stderr) == (0, "")
    text = " ".join(answer.stdout.split())
    for row in describe(SERVICES[service]()):
        assert row.variable in text
        assert " ".join(row.spec.doc.split()) in text
    assert "[default 127.0.0.1:9092]" in text
    assert max(map(len, answer.stdout.splitlines())) <= 100


@pytest.mark.parametrize("service", SERVICES)
def test_unknown_arguments_are_refused(service: str) -> None:
    """With exit code 2, before anything is contacted; an abbreviation is unknown, too."""
    answer = run(f"services.{service}", "--print", "--port=8010", "start")

    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.splitlines()[-1].endswith("error: unrecognized arguments: --print --port=8010 start")


def test_a_misspelt_setting_is_reported_with_the_nearest_name() -> None:
    """It would otherwise have no effect and no trace."""
    answer = run("services.consumer", "--print-config", BATON_GAP_MSS="5", BATON_STREAMS="2")

    assert answer.returncode == 0
    assert answer.stderr == "consumer: BATON_GAP_MSS is not a setting; did you mean BATON_GAP_MS?\n"


def test_a_setting_that_is_gone_is_reported_with_what_to_do() -> None:
    """Its nearest name would mislead."""
    assert misspelt({"BATON_WORKERS": "4"}) == [
        "BATON_WORKERS is not a setting any more: start several producers"
    ]


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), ([], 2), (["a", "b"], 2), (["--x"], 2)])
def test_the_driver_of_a_run_explains_its_argument(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes the folder of a run and no options."""
    assert driver.main(arguments) == code
    assert "usage: python -m services.control.spark.driver <run folder>" in "".join(capsys.readouterr())
