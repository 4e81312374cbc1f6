"""Prints text of others safely: on a terminal it cannot move the cursor, hide text or change colours.

Every command prints by `echo`, which alters nothing that goes into a file or a pipe. Within a line for
people, or a cell of a table, a line end of others would forge a line: `printable` and `escaped` keep those on
one line.
"""

from __future__ import annotations

import sys

import click


def echo(message: str | bytes = "", *, err: bool = False, nl: bool = True) -> None:
    """Prints to standard output or error; on a terminal, what it could obey is escaped."""
    if (sys.stderr if err else sys.stdout).isatty():
        text = message if isinstance(message, str) else message.decode(errors="backslashreplace")
        message = _visible(text)
    # without `color`, click takes what looks like a colour out of what goes into a pipe
    click.echo(message, err=err, nl=nl, color=True)


def _visible(text: str) -> str:
    # our own lines end, and JSON and logs have tabs
    return "".join(c if c in "\n\t" else printable(c) for c in text) if not text.isprintable() else text


def escaped(value: bytes) -> str:
    r"""The bytes as printable text; backslashes and all other characters are escaped as in Python.

    >>> print(escaped("é \x1b[2J \\ \u202e".encode() + b"\n\xff"))
    é \x1b[2J \\ \u202e\n\xff
    """
    # first, so that a posted `\x1b` differs from an escaped control character
    text = value.replace(b"\\", b"\\\\").decode(errors="backslashreplace")
    return printable(text)


def printable(text: str) -> str:
    r"""The text with everything escaped that is not printable, such as control characters and line ends.

    >>> print(printable("é \x1b[2J \\ \n"))
    é \x1b[2J \ \n
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
