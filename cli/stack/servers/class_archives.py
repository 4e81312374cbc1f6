"""Makes the archives from which Kafka and Spark start sooner (`shared/class_archive.py`).

Java writes such an archive when a program ends, with the classes that it has loaded. So each program
rehearses once: a broker starts and stops, and Spark runs a small job. Used by `baton jars`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cli.stack.faults import NotReady
from cli.stack.jars.java import find_java, pyspark_jars
from cli.stack.jars.lock import class_path, jar_folder, read_lock
from cli.stack.processes.leash import on_leash
from cli.stack.processes.probes import kafka_answers
from cli.stack.servers.formatting import format_storage
from cli.stack.servers.servers import (
    LOOPBACK,
    KafkaOptions,
    kafka_argv,
    kafka_format_argv,
    new_cluster_id,
    prepare_kafka,
)
from shared.class_archive import Program, archive_of, into_archive

REHEARSAL_S = 600.0
"""Only a limit: a rehearsal takes half a minute."""
POLL_S = 0.1


def ensure_archive(program: Program, rehearse: Callable[[Path], None] | None = None) -> bool:
    """Whether the program has an archive; makes it if it is missing or older than its Java or its jars.

    `rehearse` runs the program and lets Java write the given file. Raises JavaMissing.
    """
    archive = archive_of(program)
    made_of = (Path(find_java()).resolve(), pyspark_jars(), jar_folder(program))
    with contextlib.suppress(OSError):
        # ctime says when a file came to this machine; a package keeps the mtime of its build
        if archive.stat().st_mtime > max(path.stat().st_ctime for path in made_of):
            return True
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        # Java takes it for the one to write if it finds both
        archive.unlink(missing_ok=True)
        # in the same file system, so that it moves by a rename
        with tempfile.TemporaryDirectory(prefix=".making-", dir=archive.parent) as folder:
            made = Path(folder, archive.name)
            (rehearse or REHEARSALS[program])(made)
            made.replace(archive)
    except (OSError, subprocess.SubprocessError, NotReady):
        return False  # not in every environment may we write, and not every Java has what it takes
    return True


def rehearse_kafka(archive: Path) -> None:
    """Starts a broker, and stops it when it answers."""
    port, controller_port = free_ports()
    options = KafkaOptions(home=archive.parent / "kafka", port=port, controller_port=controller_port)
    prepare_kafka(options)
    java, jars = find_java(), class_path(jar_folder("kafka"), read_lock("kafka"))
    asyncio.run(format_storage(kafka_format_argv(options, java, jars, new_cluster_id())))
    _, *arguments = kafka_argv(options, java, jars)
    with _started([java, *into_archive(archive), *arguments]) as broker:
        deadline = time.monotonic() + REHEARSAL_S
        while not asyncio.run(kafka_answers(options.address)):
            if broker.poll() is not None or time.monotonic() > deadline:
                raise NotReady("the broker does not answer")
            time.sleep(POLL_S)
        broker.terminate()
        broker.wait(REHEARSAL_S)


def rehearse_spark(archive: Path) -> None:
    """Runs Spark's small job."""
    job = "services.control.spark.rehearsal"
    with _started([sys.executable, "-P", "-m", job, str(jar_folder("spark")), str(archive)]) as spark:
        spark.wait(REHEARSAL_S)


REHEARSALS: dict[Program, Callable[[Path], None]] = {"kafka": rehearse_kafka, "spark": rehearse_spark}


def free_ports() -> tuple[int, int]:
    """Two ports of loopback at which nobody listens."""
    with socket.create_server((LOOPBACK, 0)) as first, socket.create_server((LOOPBACK, 0)) as second:
        return first.getsockname()[1], second.getsockname()[1]


@contextlib.contextmanager
def _started(argv: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """The process for the block; what is left of it at the end is killed."""
    none = subprocess.DEVNULL
    with subprocess.Popen(on_leash(argv), stdin=none, stdout=none, stderr=none) as process:
        try:
            yield process
        finally:
            process.kill()
