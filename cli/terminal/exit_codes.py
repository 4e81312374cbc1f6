"""The exit codes of `baton`: one table, from which `baton --help` and `cli/main.py` take them.

A script decides by the code what to do: correct the call, change what was asked for, look at what failed, or
try again later.
"""

from __future__ import annotations

from enum import IntEnum

from cli.terminal.interrupts import INTERRUPTED
from shared.errors import BatonError, Conflict, InvalidInput, SettingsInvalid, Unavailable


class ExitCode(IntEnum):
    """How a command ended; each with its line in `baton --help`."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        """The code, with its meaning."""
        self = int.__new__(cls, code)
        self._value_ = code
        self.meaning = meaning
        return self

    DONE = 0, "done"
    FAILED = 1, "failed: an error, or what --wait waited for has failed or was cancelled"
    USAGE = 2, "usage: an argument, option or setting is wrong; nothing was sent"
    REFUSED = 3, "refused: invalid, unknown, not allowed, or in conflict; repeating it does not help"
    UNREACHABLE = 4, "unreachable: a service or server does not answer, or is not ready; try again later"
    INTERRUPTED = INTERRUPTED, "interrupted by Ctrl-C"


_CODES: dict[type[BatonError], ExitCode] = {
    SettingsInvalid: ExitCode.USAGE,
    InvalidInput: ExitCode.REFUSED,
    Conflict: ExitCode.REFUSED,
    Unavailable: ExitCode.UNREACHABLE,
    BatonError: ExitCode.FAILED,
}
"""The first match wins, so subclasses come first."""


def exit_code_for(error: BatonError) -> ExitCode:
    """The code with which an error ends the command.

    >>> exit_code_for(Unavailable()), exit_code_for(BatonError())
    (<ExitCode.UNREACHABLE: 4>, <ExitCode.FAILED: 1>)
    """
    return next(code for kind, code in _CODES.items() if isinstance(error, kind))
