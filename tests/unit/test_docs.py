"""The documentation matches the code: settings, files, links, commands, log messages, routes."""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest

from cli.commands.settings import settings_page
from cli.kafka.rights import PRINCIPALS, rights_of
from cli.main import COMMANDS
from cli.stack.options import SERVICES
from services.control.core.report.rows import StreamRow
from services.producer.core.ingest import ingest
from services.producer.http.door import Answer
from services.producer.settings import ProducerSettings
from shared.model.form import Form
from shared.model.names import Names
from shared.model.routing import initial_table
from shared.service.known_settings import GONE
from shared.service.settings import describe

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = [path for part in ("shared", "services", "cli") for path in sorted((ROOT / part).rglob("*.py"))]
GENERATED = {"docs/performance.md"}
"""Pages that measurements write; a link to one may exist before the page does."""
TOP_FOLDERS = "shared|services|cli|bench|supply_chain|tests|docs"


def name_of(path: Path) -> str:
    """The file's path from the root."""
    return str(path.relative_to(ROOT))


def test_the_settings_page_is_up_to_date() -> None:
    """`baton settings > docs/settings.md` regenerates it."""
    assert (ROOT / "docs" / "settings.md").read_text() == settings_page()


def test_every_variable_is_on_the_settings_page() -> None:
    """Every `BATON_…` that a source file names has a row."""
    page = settings_page()
    named = {
        name
        for path in SOURCES
        for name in re.findall(r"\"(BATON_[A-Z_]+[A-Z])\"|envvar=\"([A-Z_]+)\"", path.read_text())
        for name in name
        if name
    }

    assert {name for name in named - GONE.keys() if f"| `{name}` |" not in page} == set()


@pytest.mark.parametrize("service", SERVICES)
def test_every_range_explains_what_goes_wrong_outside_it(service: str) -> None:
    """Without the reason, a bound cannot be moved safely."""
    rows = describe(SERVICES[service]())
    ranged = [row for row in rows if row.spec.allowed.low is not None]

    assert [row.variable for row in ranged if not row.spec.allowed.outside] == []
    assert [row.variable for row in rows if not row.spec.doc] == []


def offenders(faults_of: Callable[[Path], Iterable[str]], pages: list[Path] = PAGES) -> dict[str, list[str]]:
    """What breaks a rule, by page."""
    return {name_of(page): faults for page in pages if (faults := list(faults_of(page)))}


def test_links_resolve() -> None:
    """Every relative link names an existing file and, after a `#`, an existing heading."""

    def broken(page: Path) -> Iterable[str]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if "://" in target:
                continue
            path, _, heading = target.partition("#")
            found = (page.parent / path).resolve() if path else page
            if not found.exists():
                if str(found.relative_to(ROOT)) not in GENERATED:
                    yield target
            elif heading and heading not in anchors_of(found):
                yield target

    assert offenders(broken) == {}


def test_named_files_exist() -> None:
    """A path in code style that begins with one of our top folders exists."""

    def gone(page: Path) -> Iterable[str]:
        for path in re.findall(rf"`((?:{TOP_FOLDERS})/[\w./-]+)`", page.read_text()):
            if path not in GENERATED and not (ROOT / path).exists():
                yield path

    assert offenders(gone) == {}


def test_named_tests_exist() -> None:
    """Every `tests/…::name` is a test; a bare `::name` is in the file named before it."""

    def gone(page: Path) -> Iterable[str]:
        file = ""
        for named, test in re.findall(r"`(tests/[\w/]+\.py)?(?:::(\w+))?`", page.read_text()):
            file = named or file
            if test and not re.search(rf"(?m)^(?:async )?def {test}\(", (ROOT / file).read_text()):
                yield f"{file}::{test}"

    assert offenders(gone) == {}


def test_no_page_needs_kafkas_own_tools() -> None:
    """Baton's jars hold none of them, so pages but the changelog name a command of `baton` instead."""
    pages = [*(page for page in PAGES if page.name != "CHANGELOG.md"), ROOT / "agent" / "try.js"]

    # with and without `.sh`, as distributions name them
    found = offenders(
        lambda page: re.findall(r"(?<!-)\b(?:kafka|zookeeper)-[a-z-]+", page.read_text()), pages
    )

    assert found == {}


def test_every_claim_about_handovers_names_its_test() -> None:
    """The page stays short, and every row of its table names a test that runs."""
    page = (ROOT / "docs" / "handover.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line][1:]

    assert len(page.splitlines()) <= 110
    assert len(rows) > 5
    assert [row for row in rows if "::test_" not in row] == []


def test_files_named_in_the_code_exist() -> None:
    """Readers follow the paths in docstrings and comments."""
    named = rf"\b(?:{TOP_FOLDERS})/[\w/.-]+\.(?:py|md)\b"
    pairs = {(name_of(path), found) for path in SOURCES for found in re.findall(named, path.read_text())}

    assert {(where, path) for where, path in pairs if not (ROOT / path).exists()} == set()


def test_named_commands_exist() -> None:
    """`baton …` is a command of the command line, and `make …` a target of the Makefile."""
    targets = set(re.findall(r"(?m)^([a-z0-9-]+):", (ROOT / "Makefile").read_text()))

    def unknown(page: Path) -> Iterable[str]:
        text = page.read_text()
        yield from set(re.findall(r"(?:`|\n)baton ([a-z]+)", text)) - COMMANDS.keys()
        yield from set(re.findall(r"(?:`|\n)make ([a-z0-9-]+)", text)) - targets

    assert offenders(unknown) == {}


def test_documented_log_messages_are_logged() -> None:
    """Each message in the table of `docs/operations.md` is a constant message of some log call."""
    page = (ROOT / "docs" / "operations.md").read_text()
    table = page[page.index("## Messages in the logs") :]
    documented = re.findall(r"(?m)^\| `([^`]+)` \|", table)

    assert len(documented) > 10
    assert set(documented) - logged_messages() == set()


def test_the_readmes_fragments_produce_the_readmes_answer() -> None:
    """The real code parses what the first `curl` sends, and gives the answer shown."""
    text = (ROOT / "README.md").read_text()
    body = re.findall(r"-d '(.*?)'", text, re.DOTALL)[0].encode()
    (shown,) = re.findall(r'(?m)^\{"accepted".*$', text)
    limits = ProducerSettings().limits

    ingested = ingest(body, Form.JSON, initial_table(24), limits)

    answer = Answer(accepted=ingested.count, rejected=ingested.rejected)
    assert msgspec.json.encode(answer).decode() == shown


def test_the_readmes_stream_is_a_row_of_controls_answer() -> None:
    """The row has every field, in order, and belongs to the stream of the example's key."""
    text = (ROOT / "README.md").read_text()
    (shown,) = re.findall(r'\{"streams":\[(\{.*?\}\})\]', text, re.DOTALL)

    row = msgspec.json.decode(shown, type=StreamRow)

    assert msgspec.json.encode(row).decode() == re.sub(r"\n\s*", "", shown)
    assert row.stream == initial_table(24).stream_for(b"visitor-1")


def test_named_settings_exist() -> None:
    """Every `BATON_…` in the prose has a row on the settings page."""
    known = set(re.findall(r"(?m)^\| `([A-Z_]+)` \|", settings_page())) | GONE.keys()

    assert offenders(lambda page: set(re.findall(r"BATON_[A-Z_]+[A-Z]", page.read_text())) - known) == {}


def test_the_tour_prints_what_it_says() -> None:
    """`docs/tour.md` runs as written, on the real core."""
    result = doctest.testfile(str(ROOT / "docs" / "tour.md"), module_relative=False)

    assert result.attempted > 40
    assert result.failed == 0


def test_the_readme_is_short() -> None:
    """At most 150 lines: the rest belongs in docs/."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_decisions_are_numbered_without_a_gap() -> None:
    """So `docs/adr/0003` in a comment keeps pointing to one decision. The index has each once."""
    pages = sorted(path.name for path in (ROOT / "docs" / "adr").glob("0*.md"))
    numbers = [page[:4] for page in pages]
    index = re.findall(r"(?m)^\* \[\d+\]\((.+?)\)", (ROOT / "docs" / "adr" / "README.md").read_text())

    assert sorted(index) == pages
    assert numbers == [f"{number:04d}" for number in range(1, len(numbers) + 1)]


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def logged_messages() -> set[str]:
    """The first argument of every log call; the variable parts of an f-string are `…`."""
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                if node.func.attr not in ("info", "warning", "error", "exception"):
                    continue
                if isinstance(node.args[0], ast.Constant):
                    found.add(str(node.args[0].value))
                elif isinstance(node.args[0], ast.JoinedStr):
                    parts = node.args[0].values
                    found.add("".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in parts))
    return found


def test_the_table_of_least_rights_is_what_the_tests_grant() -> None:
    """Row by row; tests/e2e/test_least_rights.py proves that they suffice and that none is too many."""
    rows = []
    for principal in PRINCIPALS:
        for right in rights_of(principal, Names()):
            name = f"`{right.name}{'*' if right.pattern == 'prefixed' else ''}`"
            rows.append((principal, f"{right.resource} {name}", ", ".join(right.operations)))

    section = (ROOT / "docs" / "security.md").read_text().split("## Kafka")[1].split("## ZooKeeper")[0]
    shown, principal = [], ""
    for row in re.findall(
        r"(?m)^\| ([a-z ]*) \| ((?:topic|group|transactional-id) `\S+`) \| (.+) \|$", section
    ):
        principal = row[0].strip() or principal
        shown.append((principal, *row[1:]))
    assert shown == rows
