"""Text of others, safe to print: it cannot move the cursor, hide text or change colours."""

from __future__ import annotations


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
