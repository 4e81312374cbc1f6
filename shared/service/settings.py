"""Reads settings: one frozen dataclass per service, filled from a mapping, with all faults reported at once.

Each service declares `setting(...)` fields. `load` reads `BATON_<FIELD NAME IN CAPITALS>` from the given
mapping (never from the process itself), converts the values, checks their ranges, and then calls the class's
`check()` for relations between settings. `describe` returns the rows of the page of settings.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from shared.errors import SettingsInvalid

PREFIX = "BATON_"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The meaning, unit and range of a setting, and what goes wrong outside the range."""

    doc: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    outside: str = ""
    secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting for the documentation and `--print-config`."""

    variable: str
    default: str
    value: str
    spec: Spec


def setting(
    default: Any = dataclasses.MISSING,
    doc: str = "",
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    outside: str = "",
    secret: bool = False,
    factory: Callable[[], Any] | None = None,
) -> Any:
    """A field of a settings dataclass; required without a `default` or `factory`.

    The value of a `secret` setting never appears in `describe`, in faults or in the settings' `repr`.
    """
    spec = Spec(doc=doc, unit=unit, low=low, high=high, choices=choices, outside=outside, secret=secret)
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata={"spec": spec}, repr=not secret)
    return dataclasses.field(default=default, metadata={"spec": spec}, repr=not secret)


def variable_for(name: str) -> str:
    """The environment variable of a field: `gap_ms` → `BATON_GAP_MS`."""
    return PREFIX + name.upper()


def load(cls: type[T], mapping: Mapping[str, str]) -> T:
    """The settings of `cls` from `mapping`, usually the environment.

    Raises SettingsInvalid with every fault: unreadable values, values out of range, missing values; and if
    there are none, the faults that the class's own `check()` finds.
    """
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    faults: list[str] = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        variable = variable_for(field.name)
        raw = mapping.get(variable)
        # compose files and shells easily set a variable to nothing
        if raw is None or (raw == "" and hints[field.name] is not str):
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            if required:
                faults.append(f"{variable} is missing: {field.metadata['spec'].doc}")
            continue
        spec: Spec = field.metadata["spec"]
        shown = variable if spec.secret else f"{variable}={raw!r}"
        try:
            values[field.name] = _convert(raw, hints[field.name])
        except ValueError as error:
            faults.append(f"{shown}: {error}")
            continue
        if fault := _range_fault(values[field.name], spec):
            faults.append(f"{shown}: {fault}")
    if faults:
        raise SettingsInvalid(faults)
    settings = cls(**values)
    check = getattr(settings, "check", list)
    if faults := check():
        raise SettingsInvalid(faults)
    return settings


def describe(settings: Any) -> list[Row]:
    """Every setting of an instance in the order of declaration, without the values of secrets."""
    rows = []
    for field in dataclasses.fields(settings):
        spec: Spec = field.metadata["spec"]
        default = "(required)"
        if field.default is not dataclasses.MISSING:
            default = _show(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            default = "(generated)"
        value = _show(getattr(settings, field.name))
        rows.append(
            Row(
                variable=variable_for(field.name),
                default=default,
                value="(secret)" if spec.secret and value else value,
                spec=spec,
            )
        )
    return rows


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _convert(raw: str, hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        hint = next(arg for arg in typing.get_args(hint) if arg is not type(None))
    if hint is bool:
        if raw.lower() in ("true", "1", "yes", "on"):
            return True
        if raw.lower() in ("false", "0", "no", "off"):
            return False
        raise ValueError("neither true nor false")
    if hint not in (int, float):
        return raw
    try:
        return hint(raw)
    except ValueError:
        raise ValueError("not a whole number" if hint is int else "not a number") from None


def _range_fault(value: Any, spec: Spec) -> str:
    if spec.choices and value not in spec.choices:
        return f"must be one of {', '.join(spec.choices)}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        # `not >=` instead of `<`, so that NaN fails too
        if spec.low is not None and not value >= spec.low:
            return f"must be at least {spec.low:g}{_why(spec)}"
        if spec.high is not None and not value <= spec.high:
            return f"must be at most {spec.high:g}{_why(spec)}"
    return ""


def _why(spec: Spec) -> str:
    return f" ({spec.outside})" if spec.outside else ""
