"""The registry of jobs: the Spark programs that users may run, and the parameters of each.

Pure. `parse_parameters` turns a user's input into the complete, typed parameters of a run, or reports every
fault at once. The programs live in `services/control/spark`, under the same names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from shared.errors import InvalidInput, NotFound

MAX_TEXT = 1000
"""Longest text that a parameter may hold, in characters."""
_JSON_PATH = r"\$(\.[A-Za-z_][A-Za-z0-9_-]*|\[[0-9]{1,6}\]|\['[^'\\\]]{1,200}'\])+"


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
            description="Merges the delivered sessions into the Delta table `sessions`, each exactly once.",
        ),
        Job(
            name="reports",
            description="Computes reports per hour and day, and the top items, from the table `sessions`.",
            parameters=(
                Parameter(
                    name="item_path",
                    type="string",
                    description="JSON path into a fragment that names its item",
                    default="$.data.path",
                    pattern=_JSON_PATH,
                ),
                Parameter(
                    name="top",
                    type="integer",
                    description="how many items each list of top items holds",
                    default=20,
                    low=1,
                    high=1000,
                ),
            ),
        ),
        Job(
            name="audit",
            description="Recomputes all sessions from the fragments and compares them with those delivered.",
        ),
    )
}


def job_named(name: str, jobs: Mapping[str, Job] = JOBS) -> Job:
    """The job. Raises UnknownJob, which lists the known jobs."""
    if name not in jobs:
        raise UnknownJob(f"there is no job {name!r}; there are {', '.join(sorted(jobs))}")
    return jobs[name]


def parse_parameters(job: Job, given: Mapping[str, Any]) -> dict[str, str | int]:
    """The parameters of a run: the given ones, and the defaults of the rest.

    Raises ParametersInvalid, which lists every fault: unknown names, wrong types, values out of range.

    >>> parse_parameters(JOBS["reports"], {"top": 5})
    {'item_path': '$.data.path', 'top': 5}
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
    if faults:
        raise ParametersInvalid(job.name, faults)
    return values
