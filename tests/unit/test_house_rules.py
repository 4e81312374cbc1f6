"""The architecture as rules on imports: cores decide, adapters act, and each I/O library has its few files.

The rules read the source with `ast`, so they also cover code that no test runs.
"""

from __future__ import annotations

import ast
import functools
import graphlib
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [path for part in ("shared", "services", "cli") for path in sorted((ROOT / part).rglob("*.py"))]
FACES = [ROOT / "shared" / "kafka" / room for room in ("connect", "read", "send", "admin")]
"""Rooms of `shared/kafka` that everybody may enter."""
SHARED = [
    path
    for path in SOURCES
    if (path.parent.parent == ROOT / "shared" or path.parent in FACES) and path.name != "__init__.py"
]
INNER = [
    path
    for path in SOURCES
    if path.relative_to(ROOT).match("shared/*/*/*.py")
    and path.parent not in FACES
    and path.name != "__init__.py"
]
CORE = [path for path in SOURCES if {"core", "model"} & {*path.relative_to(ROOT).parts}]

PURE = {
    *(
        "__future__",
        "array",
        "base64",
        "bisect",
        "collections",
        "collections.abc",
        "contextlib",
        "dataclasses",
        "enum",
    ),
    *(
        "functools",
        "hashlib",
        "heapq",
        "hmac",
        "itertools",
        "math",
        "msgspec",
        "operator",
        "re",
        "statistics",
        "types",
    ),
    *("typing", "zlib"),
    *("shared.errors", "shared.service.signing"),
}
"""What a core may import besides `shared/model` and its own service's core: no clock, I/O or logging."""
PURE_IN_MODEL = {"datetime", "sys"}
"""What the formats need in addition, to parse times and to intern keys."""
SALTED = {"hash", "id"}
"""Built-in functions whose results differ between processes."""
PARTS_OF_AIOKAFKA = (
    "aiokafka.codec.",
    "aiokafka.conn.",
    "aiokafka.errors.",
    "aiokafka.protocol.",
    "aiokafka.record.",
)
IMPORTED_BY = {
    "aiokafka": ("shared/kafka/*/*.py",),
    "aiozk": ("shared/zookeeper/link*.py",),
    "httpx": (
        "cli/http/requests.py",
        "services/consumer/adapters/http_peers.py",
        "services/control/adapters/processes/client.py",
        "services/control/adapters/processes/queues.py",
        "services/control/adapters/processes/signed_requests.py",
        "services/control/adapters/runs/*.py",
    ),
    "httptools": ("shared/server/reader.py",),
    "aiohttp": ("services/control/adapters/processes/kept_connections.py",),
    "cryptography": ("cli/stack/secured/certificates.py",),
    "py4j": ("services/control/spark/*.py", "services/control/spark/*/*.py"),
    "deltalake": ("services/control/tables/*.py",),
    "duckdb": ("cli/commands/sql.py",),
    "pyarrow": (
        "services/control/spark/*.py",
        "services/control/spark/*/*.py",
        "services/control/tables/*.py",
    ),
    "pyspark": ("services/control/spark/*.py", "services/control/spark/*/*.py"),
    "uvicorn": (
        "shared/server/connection.py",
        "shared/server/listener.py",
        "services/control/http/app.py",
    ),
    "uvloop": ("shared/service/runtime.py",),
    "rich": ("cli/*.py", "cli/*/*.py", "cli/*/*/*.py"),
    "click": ("cli/*.py", "cli/*/*.py", "cli/*/*/*.py"),
    "pydantic": ("services/producer/app.py",),
}
"""Libraries that do I/O or belong to one boundary, and the files that may import them."""
ONLY_IN_SHARED = {"aiokafka"}
WIRE = "shared.kafka.wire."
ONE_IDEA = {
    "cli/commands": "a file for each command",
    "services/consumer/core/commits": "what one commit writes, and when",
    "services/control/http/api": "a file for each resource",
    "services/control/spark/audit": "the rules of sessions, stated a second time and compared",
    "services/control/spark/reports": "one job: plan, state, publish",
    "shared/model": "a file for each format",
    "shared/server": "one protocol, from the socket to the answer",
    "shared/service": "what every service process needs",
}
"""Folders with more than twelve things, or thirty arrows, and the idea that makes them one."""
VAGUE = ("Manager", "Helper", "Util", "Base", "Impl")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The file's syntax tree."""
    return ast.parse(path.read_text())


@functools.cache
def imports_of(path: Path) -> tuple[str, ...]:
    """Every module that the file imports, at any depth, and every name that it imports from one."""
    found: list[str] = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found += (node.module or ".", *(f"{node.module}.{alias.name}" for alias in node.names))
    return tuple(found)


def name_of(path: Path) -> str:
    """The file's path from the root."""
    return str(path.relative_to(ROOT))


def offenders(files: list[Path], faults_of: Callable[[Path], Iterable[str]]) -> dict[str, list[str]]:
    """What breaks a rule, by file: one test lists them all, because a test for each file costs CI minutes."""
    assert files != []
    return {name_of(path): faults for path in files if (faults := list(faults_of(path)))}


def test_core_decides_from_its_arguments_alone() -> None:
    """No clock, randomness, I/O or logging, and no built-in `hash`, which each process salts differently."""

    def foreign(path: Path) -> Iterable[str]:
        own = ".".join(path.relative_to(ROOT).parts[:3])
        pure = PURE | PURE_IN_MODEL if "model" in path.relative_to(ROOT).parts else PURE
        for name in imports_of(path):
            if not ({name, name.rpartition(".")[0]} & pure or name.startswith((own, "shared.model."))):
                yield name
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SALTED:
                yield f"{node.func.id}()"

    assert offenders(CORE, foreign) == {}


def test_every_service_has_a_core() -> None:
    """Otherwise the rule above would check nothing."""
    assert {path.relative_to(ROOT).parts[1] for path in CORE} == {
        "producer",
        "consumer",
        "control",
        "queue",
        "model",
    }


def test_services_never_import_each_other_and_nothing_imports_its_users() -> None:
    """`shared` imports no service, a service only itself, and neither imports the command line."""

    def upward(path: Path) -> Iterable[str]:
        top, second, *_ = (*path.relative_to(ROOT).parts, "")
        allowed = {"shared": (), "services": (f"services.{second}.",), "cli": ("cli.", "services.")}[top]
        for name in imports_of(path):
            # `from services.control import models` names the service itself
            if name.split(".")[0] in ("services", "cli") and not f"{name}.".startswith(allowed):
                yield name

    assert offenders(SOURCES, upward) == {}


@pytest.mark.parametrize("library", IMPORTED_BY)
def test_each_io_library_is_imported_only_in_its_few_files(library: str) -> None:
    """One boundary per library: everything that Kafka can do to us is in a few files."""
    users = [path for path in SOURCES if any(name.split(".")[0] == library for name in imports_of(path))]
    others = [
        name_of(path)
        for path in users
        if not any(path.relative_to(ROOT).match(pattern) for pattern in IMPORTED_BY[library])
    ]

    assert users != []
    assert others == []


def test_of_aiokafka_only_connections_and_codecs_are_used() -> None:
    """No consumer, producer or administrator: those have connections of their own, which know no access."""

    def other(path: Path) -> Iterable[str]:
        for name in imports_of(path):
            known = f"{name}.".startswith(PARTS_OF_AIOKAFKA) and "._" not in name
            if name.split(".")[0] == "aiokafka" and not known:
                yield name

    assert offenders(SOURCES, other) == {}


def test_every_file_opens_with_its_purpose() -> None:
    """Every file that is not empty begins with a docstring."""
    files = [path for path in SOURCES if path.read_text()]

    assert offenders(files, lambda path: () if ast.get_docstring(tree_of(path)) else ("no docstring",)) == {}


def test_names_say_what_a_class_is() -> None:
    """No Manager, Helper, Util, Base or Impl: anything would fit into such a class."""

    def vague(path: Path) -> Iterable[str]:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef) and node.name.endswith(VAGUE):
                yield node.name

    assert offenders(SOURCES, vague) == {}


def test_no_wait_can_lose_a_cancellation() -> None:
    """`asyncio.gather` raises a failure in its place, and before Python 3.12 `asyncio.wait_for` may return a
    result instead: `together` and `asyncio.timeout` do not.
    """

    def losing(path: Path) -> Iterable[str]:
        for node in ast.walk(tree_of(path)):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in ("asyncio.gather", "asyncio.wait_for")
                and "return_exceptions=True" not in map(ast.unparse, node.keywords)
            ):
                yield f"line {node.lineno}"

    assert offenders(SOURCES, losing) == {}


def test_shared_files_have_at_least_two_users() -> None:
    """A file with one user lives with that user, except where only `shared` may do what it does."""

    def lonely(path: Path) -> Iterable[str]:
        is_only_here = any(
            name.split(".")[0] in ONLY_IN_SHARED or name.startswith(WIRE) for name in imports_of(path)
        )
        users = users_of(module_of(path))
        if len(users) < (1 if is_only_here else 2):
            yield f"used by {sorted(users)}"

    assert offenders(SHARED, lonely) == {}


def test_an_inner_folder_serves_its_room_alone() -> None:
    """Others use the room's own files; so what is in the folder can change without them."""

    def strangers(path: Path) -> Iterable[str]:
        users = [other for other in SOURCES if module_of(path) in imports_of(other)]
        if not users:
            yield "nobody"
        for other in users:
            if not other.is_relative_to(path.parents[1]):
                yield name_of(other)

    assert offenders(INNER, strangers) == {}


@functools.cache
def users_of(module: str) -> frozenset[str]:
    """The services and `cli` that import the shared module, directly or through other shared modules."""
    found: set[str] = set()
    for path in SOURCES:
        if module in imports_of(path):
            top, second = path.relative_to(ROOT).parts[:2]
            found |= users_of(module_of(path)) if top == "shared" else {second if top == "services" else top}
    return frozenset(found)


def test_every_folder_is_a_picture_to_keep_in_mind() -> None:
    """At every level: at most twelve things, files and folders, with thirty arrows between them, or one idea
    that makes them one thing; and no circle, so no arrow runs back up.
    """
    crowded: dict[str, tuple[int, int]] = {}
    circles: dict[str, list[str]] = {}
    for folder in sorted(
        {parent for path in SOURCES for parent in path.relative_to(ROOT).parents} - {Path()}
    ):
        things, arrows = rooms_of(folder)
        if len(things) > 12 or len(arrows) > 30:
            crowded[str(folder)] = len(things), len(arrows)
        try:
            graphlib.TopologicalSorter({a: {b for c, b in arrows if c == a} for a in things}).prepare()
        except graphlib.CycleError as circle:
            circles[str(folder)] = circle.args[1]

    assert circles == {}
    assert crowded.keys() == ONE_IDEA.keys(), crowded


def rooms_of(folder: Path) -> tuple[set[str], set[tuple[str, str]]]:
    """The things of a folder, and which of them imports which."""
    rooms = {
        path: path.relative_to(ROOT / folder).parts[0]
        for path in SOURCES
        if path.is_relative_to(ROOT / folder) and path != ROOT / folder / "__init__.py"
    }
    room_of = {module_of(path): room for path, room in rooms.items()}
    arrows = {
        (room, room_of[name])
        for path, room in rooms.items()
        for name in imports_of(path)
        if name in room_of and room_of[name] != room
    }
    return set(rooms.values()), arrows


def module_of(path: Path) -> str:
    """The file's import name."""
    return name_of(path).removesuffix(".py").replace("/", ".")


def test_every_client_of_kafka_gets_its_access() -> None:
    """The address alone would connect without what the brokers demand; only `/try` shows it."""
    found = {
        name_of(path)
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and node.attr == "kafka" and ast.unparse(node.value) == "settings"
    }

    assert found == {"services/producer/app.py"}
