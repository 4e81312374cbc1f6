"""Builds a run's submission from what a user or a schedule asks for, and from the group as it is now."""

from __future__ import annotations

from collections.abc import Mapping

from services.control.core.causes import NOBODY, Cause
from services.control.core.runs.jobs import Check, job_named, parse_parameters
from services.control.core.runs.run import ScheduledFor, Submission
from services.control.live.view.cluster_view import ClusterView, UnknownGroup
from services.control.spark.reports.plan import plan_faults

CHECKS: Mapping[str, Check] = {"reports": plan_faults}
"""How a job checks its parameters together, once each is valid on its own."""


def submission_for(
    view: ClusterView,
    job: str,
    group: str,
    parameters: dict[str, object],
    *,
    timeout_s: float | None = None,
    scheduled: ScheduledFor | None = None,
    cause: Cause = NOBODY,
) -> Submission:
    """A run of the job with the group's settings as they are now.

    Raises UnknownJob, ParametersInvalid, UnknownGroup, Unavailable.
    """
    known = job_named(job)
    values = parse_parameters(known, parameters, CHECKS.get(known.name, lambda values: []))
    group = view.named(group)
    found = view.group(group)
    if found.settings is None:
        raise UnknownGroup(f"group {group!r} has no settings: no member of it has ever started")
    return Submission(
        job=known.name,
        group=group,
        parameters=values,
        settings=found.settings,
        streams=found.view.count,
        stream_table=view.stream_table(),
        chain=view.chain(group),
        timeout_s=timeout_s,
        scheduled=scheduled,
        cause=cause,
    )
