"""Reads settings: one frozen dataclass per service, filled from a mapping, with all faults reported at once.

Each service declares `setting(...)` fields. `load` reads `BATON_<FIELD NAME IN CAPITALS>` from the given
mapping (never from the process itself), converts the values, checks their ranges, and then calls the class's
`check()` for relations between settings. `describe` returns the rows of the page of settings.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from shared.errors import SettingsInvalid

# the unit is part of the name (`gap_ms`, `max_body_bytes`); a rate (`commits_per_s`) has none
_UNIT = re.compile(r"(?<!_per)_(ms|s|bytes)$")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Allowed:
    """The values that a setting may have, and what goes wrong outside of the range."""

    low: float | None = None
    high: float | None = None
    outside: str = ""
    choices: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The allowed values for a person; "" if there is no limit.

        >>> Allowed(1, 65535).text, Allowed(0.02).text, Allowed(choices=("a", "b")).text
        ('1 … 65535', '≥ 0.02', 'a · b')
        """
        if self.choices:
            return " · ".join(self.choices)
        if self.low is not None and self.high is not None:
            return f"{_number(self.low)} … {_number(self.high)}"
        return f"≥ {_number(self.low)}" if self.low is not None else ""

    def checked(self, value: Any) -> Any:
        """The value. Raises ValueError, with the limit and its reason, if it is not allowed."""
        why = f" ({self.outside})" if self.outside else ""
        if self.choices and value not in self.choices:
            raise ValueError(f"must be one of {', '.join(self.choices)}")
        # `not >=` instead of `<`, so that NaN fails too
        if self.low is not None and not value >= self.low:
            raise ValueError(f"must be at least {self.low:g}{why}")
        if self.high is not None and not value <= self.high:
            raise ValueError(f"must be at most {self.high:g}{why}")
        return value


def at_least(low: float, outside: str = "") -> Allowed:
    """Numbers from `low` upwards."""
    return Allowed(low=low, outside=outside)


def between(low: float, high: float, outside: str = "") -> Allowed:
    """Numbers from `low` up to and including `high`."""
    return Allowed(low=low, high=high, outside=outside)


def one_of(*choices: str) -> Allowed:
    """These words."""
    return Allowed(choices=choices)


_ANY = Allowed()


@dataclass(frozen=True, slots=True)
class Spec:
    """The meaning of a setting, its allowed values, and whether its value must not be shown."""

    doc: str
    allowed: Allowed = _ANY
    is_secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting for the documentation and `--print-config`."""

    variable: str
    unit: str
    default: str
    value: str
    spec: Spec


def setting(default: Any, doc: str, allowed: Allowed = _ANY, *, secret: bool = False) -> Any:
    """A field of a settings dataclass; `default` is a value, or a function that generates one.

    The value of a `secret` setting never appears in `describe`, in faults or in the settings' `repr`.
    """
    metadata = {"spec": Spec(doc, allowed, secret)}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata, repr=not secret)
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


def variable_for(name: str) -> str:
    """The environment variable of a field: `gap_ms` → `BATON_GAP_MS`."""
    return f"BATON_{name.upper()}"


def load(cls: type[T], mapping: Mapping[str, str]) -> T:
    """The settings of `cls` from `mapping`, usually the environment.

    Raises SettingsInvalid with every fault: unreadable values and values out of range; and if there are none,
    the faults that the class's own `check()` finds.
    """
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    faults: list[str] = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        variable, spec = variable_for(field.name), field.metadata["spec"]
        raw = mapping.get(variable)
        # compose files and shells easily set a variable to nothing
        if raw is None or (raw == "" and (hints[field.name] is not str or spec.allowed.choices)):
            continue
        try:
            values[field.name] = spec.allowed.checked(_convert(raw, hints[field.name]))
        except ValueError as error:
            faults.append(f"{variable if spec.is_secret else f'{variable}={raw!r}'}: {error}")
    if faults:
        raise SettingsInvalid(faults)
    settings = cls(**values)
    # relations between values mean something only once every value is valid on its own
    if faults := getattr(settings, "check", list)():
        raise SettingsInvalid(faults)
    return settings


def describe(settings: Any) -> list[Row]:
    """Every setting of an instance in the order of declaration, without the values of secrets."""
    rows = []
    for field in dataclasses.fields(settings):
        spec, unit = field.metadata["spec"], _UNIT.search(field.name)
        value = _show(getattr(settings, field.name))
        rows.append(
            Row(
                variable=variable_for(field.name),
                unit=unit[1] if unit else "",
                default="(generated)" if field.default is dataclasses.MISSING else _show(field.default),
                value="(secret)" if spec.is_secret and value else value,
                spec=spec,
            )
        )
    return rows


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:g}"


def _show(value: Any) -> str:
    return "" if value is None else str(value)


def _convert(raw: str, hint: Any) -> Any:
    """The text as `str`, `int` or `float`, or as what the hint allows besides None."""
    kinds = typing.get_args(hint) or (hint,)
    for kind, fault in ((int, "not a whole number"), (float, "not a number")):
        if kind in kinds:
            try:
                return kind(raw)
            except ValueError:
                raise ValueError(fault) from None
    return raw
