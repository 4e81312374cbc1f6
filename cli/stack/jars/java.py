"""Finds the Java that runs ZooKeeper, Kafka and Spark: that of JAVA_HOME, else the first on the PATH.

Decided from the environment and the output of `java -version`. Everything in `cli/stack` that starts a JVM
uses it, so that a missing or old Java is reported in one sentence before anything starts.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from cli.stack.faults import JavaMissing

LEAST_VERSION = 17
"""Kafka 4 and Spark 4 need it."""


def parse_java_version(text: str) -> int | None:
    """The feature release in the output of `java -version`, or None.

    >>> parse_java_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> parse_java_version('java version "1.8.0_402"')
    8
    """
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    first = int(match[1])
    # before Java 9 the releases were called 1.8, 1.7 …
    return int(match[2]) if first == 1 and match[2] else first


@functools.cache
def find_java() -> str:
    """The path of a Java that is new enough. Raises JavaMissing."""
    need = f"Baton needs Java {LEAST_VERSION} or newer, and"
    home = os.environ.get("JAVA_HOME")
    # also for JAVA_HOME, because `which` checks that the file is executable
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if java is None:
        raise JavaMissing(f"{need} there is none {f'in JAVA_HOME={home}' if home else 'on the PATH'}")
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaMissing(f"{need} {java} fails: {error}") from None
    # it answers on standard error; some launchers print on standard output instead
    version = parse_java_version(answer.stderr + answer.stdout)
    if version is None or version < LEAST_VERSION:
        raise JavaMissing(f"{need} {java} is {f'version {version}' if version else 'of an unknown version'}")
    return java


def pyspark_jars() -> Path:
    """The folder of PySpark's jars, which contain ZooKeeper and the Ivy resolver.

    Does not import PySpark. Raises JavaMissing when it is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise JavaMissing("PySpark is not installed in this environment: run `make install`")
    return Path(spec.submodule_search_locations[0], "jars")


def the_jar(name: str) -> Path:
    """PySpark's jar whose file name starts with `name`, a dash and a digit. Raises JavaMissing."""
    found = sorted(pyspark_jars().glob(f"{name}-[0-9]*.jar"))
    if not found:
        raise JavaMissing(f"PySpark has no jar of {name}: run `make install`")
    return found[0]
