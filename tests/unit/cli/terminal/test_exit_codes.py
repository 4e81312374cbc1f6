"""How a command ended, for scripts: one table of codes, the same for every command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from cli.terminal.exit_codes import ExitCode, exit_code_for
from shared import errors
from shared.errors import BatonError
from tests.unit.cli.fake_services import problem, served

ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BatonError)]
OPERATIONS = Path(__file__).parents[4] / "docs" / "operations.md"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`baton` as a shell runs it."""
    argv = [sys.executable, "-m", "cli.main", *arguments]
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment}
    )


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (404, ExitCode.REFUSED),
        (403, ExitCode.REFUSED),
        (409, ExitCode.REFUSED),
        (422, ExitCode.REFUSED),
        (503, ExitCode.UNREACHABLE),
        (500, ExitCode.FAILED),
    ],
)
def test_the_code_says_what_a_service_answered(status: int, code: ExitCode) -> None:
    """Refused is not repeated, unreachable may be; the sentence is the service's own."""

    async def answer(_: httpx.Request) -> httpx.Response:
        return problem(status, "the service says why")

    with served(answer) as url:
        ended = run("streams", "--url", url)

    assert (ended.returncode, ended.stderr) == (code, "baton: the service says why\n")


def test_a_service_that_is_not_there_is_unreachable() -> None:
    """The port is closed, and stays so."""

    async def answer(_: httpx.Request) -> httpx.Response:
        raise AssertionError("nobody asks")

    with served(answer) as url:
        pass

    assert run("streams", "--url", url).returncode == ExitCode.UNREACHABLE


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["streams", "--no-such-option"], {}),
        (["no-such-command"], {}),
        (["streams", "--url", "127.0.0.1:8000"], {}),
        (["session", "not-an-id"], {}),
        (["events", "-f", "-o", "csv"], {}),
        (["rejected"], {"BATON_KAFKA_SASL_MECHANISM": "HOPE"}),
    ],
)
def test_what_was_typed_or_set_wrongly_is_usage(arguments: list[str], environment: Mapping[str, str]) -> None:
    """Nothing has been asked of any service."""
    assert run(*arguments, **environment).returncode == ExitCode.USAGE


def test_every_error_has_a_code_and_only_the_unavailable_may_be_repeated() -> None:
    """So a script can repeat a command that ends with 4, and no other."""
    # without their constructors, which differ
    codes = {kind: exit_code_for(kind.__new__(kind)) for kind in ERRORS}

    assert set(codes.values()) == set(ExitCode) - {ExitCode.DONE, ExitCode.INTERRUPTED}
    assert {kind for kind, code in codes.items() if code is ExitCode.UNREACHABLE} == {
        kind for kind in ERRORS if issubclass(kind, errors.Unavailable)
    }


def test_help_and_the_docs_list_every_code() -> None:
    """With the same meaning, so that neither can go stale."""
    shown = " ".join(run("--help").stdout.split())
    page = OPERATIONS.read_text()

    for code in ExitCode:
        assert f"{int(code)} {code.meaning}" in shown
        assert f"| {int(code)} | {code.meaning} |" in page
