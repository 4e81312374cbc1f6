"""Parses fragments and markers, and determines a fragment's event time.

Pure. The producer accepts fragments with the same function as the consumer reads them with, so whatever was
accepted can be read later. One strict parse by msgspec decodes the four fields that Baton uses and validates
the rest of the text; the bytes are passed on unchanged. The `audit` deliberately has a parser of its own.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from datetime import datetime

import msgspec

from shared.errors import InvalidInput
from shared.model.json_faults import UNEXPLAINED, syntax_fault, type_fault
from shared.model.nesting import MAX_NESTING, SHALLOW_BYTES, is_too_deep

MAX_KEY_BYTES = 256
MAX_ID_BYTES = 64
MAX_TIME_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""

_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ](?:[01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(?:\.(\d+))?"
    r"(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))"
)
"""Excludes every impossible time of day: `fromisoformat` accepts 24:00 in Python 3.14, and only there."""
_SHOWN = 80
"""Characters of a wrong value that an error message repeats."""
_TOO_DEEP = f"nested deeper than {MAX_NESTING}"


class FragmentRejected(InvalidInput):
    """The fragment is rejected; `reason` is a word that programs can group by."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


class Fragment(msgspec.Struct, frozen=True, gc=False):
    """The fields of a fragment that Baton reads; `time` is in ms or RFC 3339.

    `gc=False`: it refers to no object that could refer back, so the garbage collector need not look at it.
    """

    key: str
    end: bool = False
    time: int | str | msgspec.UnsetType = msgspec.UNSET
    id: str | msgspec.UnsetType = msgspec.UNSET


class Marker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record without a key: a marker if it has a `time` (ms), else a tick."""

    time: int | None = None


_decode_fragment = msgspec.json.Decoder(Fragment).decode
_decode_marker = msgspec.json.Decoder(Marker).decode


def parse_fragment(raw: bytes, explain: bool = True) -> Fragment:
    """The fragment in `raw` (JSON text) with its fields checked; `time_of` checks the time.

    Cost: 0.9 µs per KB. Raises FragmentRejected with reason `malformed` (not JSON), `invalid` (a field is
    missing or has the wrong type), `encoding`, `nesting`, `key`, `id`, or `time` (an integer far too large).
    Without `explain` the detail of `malformed` and `invalid` is UNEXPLAINED, which saves half of the cost.
    """
    try:
        # msgspec checks the UTF-8 of the four fields only, and `isascii` costs next to nothing
        if not raw.isascii():
            raw.decode()
        fragment = _decode_fragment(raw)
    except UnicodeDecodeError as error:
        raise FragmentRejected("encoding", f"not valid UTF-8 at byte {error.start}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        fragment = _decode_again(raw, error, explain)
    if len(raw) > SHALLOW_BYTES and _may_parse_deeper() and is_too_deep(raw):
        raise FragmentRejected("nesting", _TOO_DEEP)
    key = fragment.key
    # a character has at most 4 bytes, so short keys need no encoding
    if not key or (len(key) > 64 and len(key.encode()) > MAX_KEY_BYTES):
        raise FragmentRejected("key", f"`key` must have 1 to {MAX_KEY_BYTES} bytes of UTF-8")
    if (
        fragment.id is not msgspec.UNSET
        and len(fragment.id) > 16
        and len(fragment.id.encode()) > MAX_ID_BYTES
    ):
        raise FragmentRejected("id", f"`id` may have at most {MAX_ID_BYTES} bytes of UTF-8")
    return fragment


def time_of(fragment: Fragment) -> int | None:
    """The event time in ms since the epoch, or None if the fragment has none.

    Raises FragmentRejected with reason `time` if it is unreadable or outside the years 1970 … 9999.

    >>> time_of(Fragment("k", time="1970-01-01T00:00:01.9999Z"))
    1999
    """
    time = fragment.time
    if type(time) is int:
        if 0 <= time <= MAX_TIME_MS:
            return time
        raise FragmentRejected("time", "`time` must lie in the years 1970 … 9999, in ms")
    if type(time) is str:
        return parse_rfc3339(time)
    return None


def parse_rfc3339(text: str) -> int:
    """Milliseconds since the epoch of an RFC 3339 time, rounded down.

    A leap second (`:60`) counts as the first second of the next minute. Raises FragmentRejected (`time`).
    """
    # `\d` and `int` accept the digits of other scripts, too
    match = _RFC3339.fullmatch(text) if text.isascii() else None
    if match is None:
        raise FragmentRejected("time", "`time` is neither an integer (ms) nor an RFC 3339 time")
    second, fraction, sign, hours, minutes = match.groups()
    leap = second == "60"
    try:
        # naive, because the offset is added below; six calls of `int` would take four times as long
        moment = datetime.fromisoformat(f"{text[:17]}59" if leap else text[:19])
    except ValueError as error:
        raise FragmentRejected("time", f"`time` {text[:_SHOWN]!r}: {error}") from None
    days = moment.toordinal() - 719_163  # since 1970-01-01; integers, since floats would round
    seconds = days * 86_400 + moment.hour * 3600 + moment.minute * 60 + moment.second + leap
    if sign:
        seconds -= (int(hours) * 60 + int(minutes)) * (60 if sign == "+" else -60)
    # a leap second counts as the first of the next minute, which has no fraction yet
    ms = seconds * 1000 + (int(f"{fraction[:3]:0<3}") if fraction and not leap else 0)
    if not 0 <= ms <= MAX_TIME_MS:
        raise FragmentRejected("time", "`time` must lie in the years 1970 … 9999")
    return ms


def parse_marker(raw: bytes) -> Marker:
    """The marker or tick in a record without a key. Raises FragmentRejected for anything else."""
    try:
        marker = _decode_marker(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FragmentRejected("marker", f"neither a marker nor a tick: {error}") from None
    if marker.time is not None and not 0 <= marker.time <= MAX_TIME_MS:
        raise FragmentRejected("marker", "a marker's `time` must lie in the years 1970 … 9999, in ms")
    return marker


def encode_marker(time_ms: int | None) -> bytes:
    """The value of a marker's record, or of a tick's when `time_ms` is None."""
    return b"{}" if time_ms is None else b'{"time":%d}' % time_ms


def _may_parse_deeper() -> bool:
    """Whether text that could be parsed may be too deep; the rule is the same without this, which saves time.

    In Python 3.11 the parser's levels count as Python's own, of which at most 1,000 are allowed by default.
    """
    return sys.version_info >= (3, 12) or sys.getrecursionlimit() > MAX_NESTING


def _decode_again(raw: bytes, error: Exception, explain: bool) -> Fragment:
    """The fragment in text that overflowed the stack. Raises FragmentRejected if it has another fault."""
    # first, because where the stack ends must decide neither what is readable nor the reason
    if is_too_deep(raw):
        raise FragmentRejected("nesting", _TOO_DEEP) from None
    if isinstance(error, RecursionError):
        try:
            with deep_stack():
                return _decode_fragment(raw)
        except RecursionError:
            # else it would be too deep
            raise FragmentRejected("malformed", "not JSON: brackets are open where the text ends") from None
        except msgspec.DecodeError as found:
            error = found
    if isinstance(error, msgspec.ValidationError):
        raise FragmentRejected(*type_fault(str(error), explain=explain)) from None
    raise FragmentRejected("malformed", syntax_fault(raw, str(error)) if explain else UNEXPLAINED) from None


@contextlib.contextmanager
def deep_stack() -> Iterator[None]:
    """During the block, text somewhat deeper than `MAX_NESTING` can be decoded at any stack depth.

    `MAX_NESTING` more holds one fragment; twice that leaves room for the array around it.
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 2 * MAX_NESTING)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
