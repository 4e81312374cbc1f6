"""The registry of jobs: the Spark programs that users may run, and the parameters of each.

Pure. `parse_parameters` turns a user's input into the complete, typed parameters of a run, or reports every
fault at once. The programs live in `services/control/spark`, under the same names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from shared.errors import InvalidInput, NotFound

MAX_TEXT = 1000
"""Longest text that a parameter may hold, in characters."""
JSON_PATH = r"\$(\.[A-Za-z_][A-Za-z0-9_-]*|\[[0-9]{1,6}\]|\['[^'\\\]]{1,200}'\])+"
JSON_PATHS = rf"{JSON_PATH}(, ?{JSON_PATH})*"
REPORT_NAME = "[a-z0-9][a-z0-9-]{0,39}"
Check = Callable[[Mapping[str, Any]], list[tuple[str, str]]]
"""Finds faults of parameters that are valid on their own: pairs of name and fault."""
_SINCE = r"[0-9]{1,6}[smhd]|[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9:.]{8,30}([Zz]|[+-][0-9:]{5})"


class UnknownJob(NotFound):
    """There is no job of that name."""


class ParametersInvalid(InvalidInput):
    """The parameters have faults: `faults` pairs each parameter's name with what is wrong."""

    def __init__(self, job: str, faults: list[tuple[str, str]]) -> None:
        self.faults = faults
        super().__init__(f"the parameters of job {job!r} have faults")


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a job."""

    name: str
    type: Literal["string", "integer"]
    description: str
    default: Annotated[str | int | None, Meta(description="null: the parameter is optional")] = None
    low: Annotated[int | None, Meta(description="least value of an integer")] = None
    high: Annotated[int | None, Meta(description="greatest value of an integer")] = None
    pattern: Annotated[str | None, Meta(description="regular expression for the whole string")] = None

    def fault_of(self, value: object) -> str | None:
        """What is wrong with the value, or None."""
        if value is None:
            return None if self.default is None else "must not be null"
        if self.type == "integer":
            if type(value) is not int:  # `isinstance` would accept true and false
                return "must be an integer"
            if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
                return f"must be {self.low} … {self.high}"
            return None
        if type(value) is not str:
            return "must be a string"
        if not 0 < len(value) <= MAX_TEXT:
            return f"must have 1 to {MAX_TEXT} characters"
        if self.pattern and not re.fullmatch(self.pattern, value):
            return f"must match {self.pattern}"
        return None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One Spark program that users may run."""

    name: str
    description: str
    parameters: tuple[Parameter, ...] = ()


JOBS: Mapping[str, Job] = {
    job.name: job
    for job in (
        Job(
            name="lake",
            description="Appends the delivered sessions to the Delta table `sessions`, each exactly once.",
            parameters=(
                Parameter(
                    name="accept_loss",
                    type="integer",
                    description="1: continue although Kafka has lost records that the lake has not read",
                    default=0,
                    low=0,
                    high=1,
                ),
                Parameter(
                    name="recount",
                    type="integer",
                    description="1: take the table's rows as they are for those that the lake has written",
                    default=0,
                    low=0,
                    high=1,
                ),
            ),
        ),
        Job(
            name="reports",
            description="Adds the new rows of the table `sessions` to sums, and computes reports from those.",
            parameters=(
                Parameter(
                    name="from",
                    type="string",
                    description="first date (2026-01-31) or time (RFC 3339) of the report; without "
                    "`from` and `to`, the newest 31 days that have sessions",
                ),
                Parameter(name="to", type="string", description="date or time before which the report ends"),
                Parameter(
                    name="zone",
                    type="string",
                    description="time zone of dates and periods, by its IANA name",
                    default="UTC",
                ),
                Parameter(
                    name="period",
                    type="string",
                    description="hour, day or week, or several of them, separated by commas",
                    default="hour,day",
                ),
                Parameter(
                    name="item_path",
                    type="string",
                    description="JSON path into a fragment that names its item",
                    default="$.data.path",
                    pattern=JSON_PATH,
                ),
                Parameter(
                    name="item_paths",
                    type="string",
                    description="several JSON paths, separated by commas, instead of `item_path`",
                    pattern=JSON_PATHS,
                ),
                Parameter(
                    name="cut_query",
                    type="string",
                    description="yes: cut an item at its first `?` or `#`",
                    default="no",
                    pattern="yes|no",
                ),
                Parameter(
                    name="item_rules",
                    type="string",
                    description="PATTERN=>REPLACEMENT pairs, separated by spaces, that rewrite an item",
                ),
                Parameter(
                    name="top",
                    type="integer",
                    description="how many items each list of top items holds",
                    default=20,
                    low=1,
                    high=1000,
                ),
                Parameter(
                    name="report",
                    type="string",
                    description="name of the report; a run replaces only the rows of its own report",
                    default="default",
                    pattern=REPORT_NAME,
                ),
            ),
        ),
        Job(
            name="audit",
            description="Recomputes all sessions from the fragments and compares them with those delivered.",
            parameters=(
                Parameter(
                    name="streams",
                    type="string",
                    description="judge only these streams, like 0-5,7",
                    pattern=r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*",
                ),
                Parameter(
                    name="since",
                    type="string",
                    description="judge only what was appended since a time (RFC 3339) or an age (30m, 2h)",
                    pattern=_SINCE,
                ),
                Parameter(
                    name="sample",
                    type="string",
                    description="judge only this share of the keys, like 0.1; the same keys each time",
                    pattern=r"0?\.[0-9]{1,9}",
                ),
            ),
        ),
        Job(
            name="maintain",
            description="Compacts the lake's tables, clusters them by key and removes old versions.",
            parameters=(
                Parameter(
                    name="keep_days",
                    type="integer",
                    description="for how many days old versions of a table stay readable",
                    default=7,
                    low=1,
                    high=3650,
                ),
            ),
        ),
    )
}


def job_named(name: str, jobs: Mapping[str, Job] = JOBS) -> Job:
    """The job. Raises UnknownJob, which lists the known jobs."""
    if name not in jobs:
        raise UnknownJob(f"there is no job {name!r}; there are {', '.join(sorted(jobs))}")
    return jobs[name]


def parse_parameters(
    job: Job, given: Mapping[str, Any], check: Check = lambda values: []
) -> dict[str, str | int]:
    """The parameters of a run: the given ones, and the defaults of the rest.

    Raises ParametersInvalid, which lists every fault: unknown names, wrong types, values out of range.

    >>> parse_parameters(JOBS["reports"], {"top": 5})["top"]
    5
    >>> parse_parameters(JOBS["maintain"], {})
    {'keep_days': 7}
    """
    known = {parameter.name: parameter for parameter in job.parameters}
    faults = [(name, "is not a parameter of this job") for name in given if name not in known]
    values: dict[str, str | int] = {}
    for name, parameter in known.items():
        value = given.get(name, parameter.default)
        fault = parameter.fault_of(value)
        if fault:
            faults.append((name, fault))
        elif value is not None:
            values[name] = value
    faulty = {name for name, _ in faults}
    faults += [(name, fault) for name, fault in check(values) if name not in faulty]
    if faults:
        raise ParametersInvalid(job.name, faults)
    return values
