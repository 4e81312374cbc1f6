"""`baton settings`: the page of all settings, as `docs/settings.md` holds it.

Made from the services' own dataclasses, so that the page cannot say other things than the code; a test
keeps the file equal. What is not a field of them (`ELSEWHERE`) is described here, and the same test
looks for every variable that the code names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import click

from services.consumer.settings import ConsumerSettings
from services.control.settings import ControlSettings
from services.producer.settings import ProducerSettings
from shared.service.service_settings import ServiceSettings
from shared.service.settings import Row, Spec, describe

SERVICES: dict[str, type[ServiceSettings]] = {
    "producer": ProducerSettings,
    "consumer": ConsumerSettings,
    "control": ControlSettings,
}
SHOWN_DEFAULTS = {"BATON_MEMBER": "host name and process id"}
"""Defaults that are made anew in every process."""
ELSEWHERE = {
    "BATON_URL": "base URL of control, for the client commands (`--url`); default `http://127.0.0.1:8000`",
    "BATON_PRODUCER_URL": "base URL of the producer, for `baton import` and `baton rejected replay`; default "
    "`http://127.0.0.1:8001`",
    "BATON_WRITE_KEY": "what `baton import` and `baton rejected replay` show the producer (`--write-key`)",
    "BATON_HOME": "folder of the local stack's data, logs and pids (`--home`); default `.baton`",
    "BATON_PORT_OFFSET": "added to every port of the local stack (`--port-offset`); default 0",
    "BATON_CONSUMERS": "how many consumers the local stack starts (`--consumers`); default 3",
    "BATON_CACHE": "folder that keeps fetched jars; default `baton` in `XDG_CACHE_HOME` or `~/.cache`",
    "JAVA_HOME": "the Java that runs ZooKeeper, Kafka and Spark; default the first `java` on the `PATH`",
    "SPARK_MASTER": "Spark master of the jobs where BATON_SPARK_MASTER is empty; default `local[2]`",
    "SPARK_LOCAL_IP": "address that Spark binds; 127.0.0.1 on a local master unless it is set",
    "SPARK_DRIVER_MEMORY": "heap of a run's driver, which on a local master does all the work; default `2g`",
}
_COLUMNS = ("variable", "meaning", "unit", "default", "range", "outside of it")
_HEADER = """# Settings

Made by `baton settings > docs/settings.md`; do not edit it by hand.

Every setting is an environment variable, the same name in the local stack, in containers and here. A service
reads them once, at its start, and tells *all* faults at once (exit code 2); `--print-config` prints what is
in force: `python -m services.consumer --print-config`. An empty value is no value, except for text.
"""


@click.command("settings")
def settings_command() -> None:
    """Print every setting of every service, with its meaning, unit, default and range (Markdown)."""
    click.echo(settings_page(), nl=False)


def settings_page() -> str:
    """The whole page: what all services share, what is each one's own, and what no service reads."""
    common = {field.name for field in dataclasses.fields(ServiceSettings)} - {"port"}
    parts = [_HEADER, "## Every service\n", _table(_rows(ServiceSettings, common))]
    for name, settings in SERVICES.items():
        own = {field.name for field in dataclasses.fields(settings)} - common
        parts += [f"## {name.capitalize()}\n", _table(_rows(settings, own))]
    parts += [
        "## Client commands, local stack and Spark\n",
        "| variable | meaning |\n| --- | --- |\n"
        + "".join(f"| `{name}` | {_cell(meaning)} |\n" for name, meaning in ELSEWHERE.items()),
    ]
    return "\n".join(parts)


def range_text(spec: Spec) -> str:
    """The values that a setting may have.

    >>> range_text(Spec(doc="", low=1, high=65535)), range_text(Spec(doc="", low=0.02))
    ('1 … 65535', '≥ 0.02')
    """
    if spec.choices:
        return " · ".join(spec.choices)
    if spec.low is not None and spec.high is not None:
        return f"{_number(spec.low)} … {_number(spec.high)}"
    return f"≥ {_number(spec.low)}" if spec.low is not None else ""


def _rows(settings: type[ServiceSettings], names: Iterable[str]) -> list[Row]:
    wanted = {f"BATON_{name.upper()}" for name in names}
    return [row for row in describe(settings()) if row.variable in wanted]


def _table(rows: Iterable[Row]) -> str:
    lines = [_COLUMNS, ("---",) * len(_COLUMNS)]
    for row in rows:
        default = f"`{row.default}`" if row.default else "(empty)"
        lines.append(
            (
                f"`{row.variable}`",
                _cell(row.spec.doc),
                row.spec.unit,
                SHOWN_DEFAULTS.get(row.variable, default),
                range_text(row.spec),
                _cell(row.spec.outside),
            )
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:g}"
