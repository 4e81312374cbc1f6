"""The command line of a service: `--help`, `--print-config`, and nothing else.

A service is configured by its environment alone. The help lists its settings with their defaults; an
argument that the service does not know ends it with exit code 2 before it contacts anything. Used by
`shared/service/runtime.py`.
"""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Sequence
from typing import Any

from shared.service.settings import Row, describe

LEAST_COLUMNS = 60


def parse_arguments(name: str, settings_class: type[Any], arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments. Exits with 0 after `--help`, and with 2 on an unknown argument."""
    parser = argparse.ArgumentParser(
        prog=f"python -m services.{name}",
        description="Runs until SIGTERM or Ctrl-C. Every setting is an environment variable.",
        epilog="\n".join(_settings_lines(settings_class)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--print-config", action="store_true", help="print the settings in force, and exit")
    return parser.parse_args(arguments)


def _settings_lines(settings_class: type[Any]) -> list[str]:
    """The settings with meaning, range and default, wrapped to the terminal's width."""
    columns = max(LEAST_COLUMNS, shutil.get_terminal_size().columns)
    lines = ["settings:"]
    for row in describe(settings_class()):
        lines.append(f"  {row.variable}")
        indent = " " * 6
        lines += textwrap.wrap(_meaning(row), columns, initial_indent=indent, subsequent_indent=indent)
    return lines


def _meaning(row: Row) -> str:
    unit = f" {row.unit}" if row.unit and row.default else ""
    allowed = f"; {row.spec.allowed.text}" if row.spec.allowed.text else ""
    return f"{row.spec.doc} [default {row.default or 'empty'}{unit}{allowed}]"
