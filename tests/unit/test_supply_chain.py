"""The bill of materials is complete and valid; the audit never passes for want of a database."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from cli.stack.jars.lock import read_lock
from supply_chain.audit import CLEAN, HOLES, UNCHECKED, Findings, audit_jars, audit_packages, exit_code
from supply_chain.locked import PYTHON_LOCK, read_packages
from supply_chain.sbom import bill_of_materials, main

JARS = read_lock()[:3]
LOG4SHELL = {"id": "GHSA-jfh8-c2jp-5v3q", "fix_versions": ["2.15.0"]}


def test_the_bill_of_materials_lists_every_package_and_jar_with_its_checksums() -> None:
    """Valid CycloneDX 1.6; the checksums are those that set-up verifies."""
    text = bill_of_materials()
    bom = json.loads(text)
    jars = [row for row in bom["components"] if row["purl"].startswith("pkg:maven/")]
    packages = [row for row in bom["components"] if row["purl"].startswith("pkg:pypi/")]

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert bom["metadata"]["component"]["name"] == "baton"
    assert {(row["group"], row["name"], row["version"], row["hashes"][0]["content"]) for row in jars} == {
        (jar.group, jar.artifact, jar.version, jar.sha256) for jar in read_lock()
    }
    assert len(jars) == len(read_lock())
    locked = read_packages(PYTHON_LOCK.read_text())
    assert {row["purl"]: {one["content"] for one in hashes_of(row)} for row in packages} == {
        package.purl: set(package.sha256) for package in locked
    }


def test_every_locked_package_is_read() -> None:
    """Each has a checksum; the lock file has one `==` for each."""
    packages = read_packages(PYTHON_LOCK.read_text())

    pins = [line for line in PYTHON_LOCK.read_text().splitlines() if "==" in line.split(";")[0]]
    assert len(packages) == len(pins) > 50
    assert all(package.sha256 for package in packages)


def test_the_bill_is_written_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is made anew each time, in a folder that may not exist yet, and says what it is."""
    file = tmp_path / "build" / "baton.cdx.json"

    assert main([str(file)]) == 0
    first = json.loads(file.read_text())
    assert main([str(file)]) == 0
    second = json.loads(file.read_text())

    assert (first["bomFormat"], first["specVersion"], first["version"]) == ("CycloneDX", "1.6", 1)
    assert first["components"] == second["components"]
    assert first["serialNumber"] != second["serialNumber"]
    assert str(file) in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["a", "b"]])
def test_nothing_is_written_without_exactly_one_name(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is that of a wrong command."""
    monkeypatch.chdir(tmp_path)

    assert main(arguments) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rows", "code", "words"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], CLEAN, "1 of 1 checked, 0 known holes"),
        (
            [{"name": "a", "version": "1", "vulns": [LOG4SHELL]}, {"name": "b", "skip_reason": "not found"}],
            HOLES,
            "a 1: GHSA-jfh8-c2jp-5v3q (fixed in 2.15.0)",
        ),
        (
            [{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "b not found"}],
            UNCHECKED,
            "1 NOT CHECKED: the database does not answer for them, e.g. b not found",
        ),
        ("Traceback …\nConnectionError: api.osv.dev", UNCHECKED, "NOT CHECKED: no database: ConnectionError"),
        (OSError(2, "No such file"), UNCHECKED, "NOT CHECKED: pip-audit cannot be run: No such file"),
    ],
)
def test_packages_without_an_answer_are_no_clean_result(rows: Any, code: int, words: str) -> None:
    """pip-audit itself exits with 0 when its database does not know a package at all."""

    def run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        if isinstance(rows, OSError):
            raise rows
        is_error = isinstance(rows, str)
        stdout = "" if is_error else json.dumps({"dependencies": rows, "fixes": []})
        return subprocess.CompletedProcess(argv, int(is_error), stdout, rows if is_error else "")

    findings = audit_packages("pip-audit", run)

    assert exit_code([findings]) == code
    assert words in "\n".join(findings.lines())


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ({"results": [{}, {}, {}]}, CLEAN, "3 of 3 checked, 0 known holes"),
        ({"results": [{}, {"vulns": [{"id": "GHSA-x"}]}, {}]}, HOLES, f"{JARS[1].artifact}@"),
        ({"results": [{}]}, UNCHECKED, "3 NOT CHECKED"),
        ({"code": 3}, UNCHECKED, "3 NOT CHECKED"),
        (
            OSError("no name"),
            UNCHECKED,
            "3 NOT CHECKED: https://api.osv.dev/v1/querybatch cannot be reached: no name",
        ),
    ],
)
def test_jars_without_an_answer_are_no_clean_result(answer: Any, code: int, words: str) -> None:
    """OSV answers each query in its place; anything else checked nothing."""
    asked: list[Any] = []

    def post(body: bytes) -> bytes:
        asked.append(json.loads(body))
        if isinstance(answer, OSError):
            raise answer
        return json.dumps(answer).encode()

    findings = audit_jars(JARS, post)

    assert exit_code([Findings(kind="x", total=0), findings]) == code
    assert words in "\n".join(findings.lines())
    (queries,) = [one["queries"] for one in asked]
    assert queries[0] == {
        "package": {"purl": f"pkg:maven/{JARS[0].group}/{JARS[0].artifact}@{JARS[0].version}"}
    }


def hashes_of(row: dict[str, Any]) -> list[dict[str, str]]:
    """The checksums of a package's files."""
    (reference,) = row["externalReferences"]
    hashes: list[dict[str, str]] = reference["hashes"]
    return hashes
