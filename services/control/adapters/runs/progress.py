"""The progress of a run, from the REST interface of its driver's Spark UI.

One of control's files that import httpx. The UI ends with its driver, so a missing answer is not an error.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import msgspec

from services.control.adapters.runs.store import DriverUp
from services.control.core.runs.run import Progress

ANSWER_TIMEOUT_S = 1.0

logger = logging.getLogger(__name__)


class SparkJob(msgspec.Struct, frozen=True, rename="camel"):
    """One of Spark's jobs; `numTasks` includes the tasks of skipped stages."""

    job_id: int = 0
    num_tasks: int = 0
    num_completed_tasks: int = 0
    num_skipped_tasks: int = 0
    num_active_tasks: int = 0
    num_failed_tasks: int = 0


class _Application(msgspec.Struct, frozen=True):
    id: str


async def read_progress(http: httpx.AsyncClient, driver: DriverUp) -> Progress | None:
    """The run's task counts so far, or None if the driver's UI does not answer."""
    if not driver.ui:
        return None

    async def get(path: str, kind: Any) -> Any:
        response = await http.get(f"{applications}{path}")
        response.raise_for_status()
        return msgspec.json.decode(response.content, type=kind)

    applications = f"{driver.ui.rstrip('/')}/api/v1/applications"
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            application = driver.application or (await get("", list[_Application]))[0].id
            jobs = await get(f"/{application}/jobs", list[SparkJob])
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, msgspec.DecodeError, IndexError) as error:
        logger.debug("no progress", extra={"ui": driver.ui, "why": repr(error)})
        return None
    return progress_of([job for job in jobs if job.job_id >= driver.first_job])


def progress_of(jobs: list[SparkJob]) -> Progress:
    """The sums over Spark's jobs, without the tasks of skipped stages, which never run.

    >>> progress_of([SparkJob(0, 9, 4, 3, 1, 0), SparkJob(1, 2, 2, 0, 0, 1)])
    Progress(tasks=8, completed=6, active=1, failed=1)
    """
    return Progress(
        tasks=sum(job.num_tasks - job.num_skipped_tasks for job in jobs),
        completed=sum(job.num_completed_tasks for job in jobs),
        active=sum(job.num_active_tasks for job in jobs),
        failed=sum(job.num_failed_tasks for job in jobs),
    )
