"""What a run's request says of its tables and of its lock."""

from __future__ import annotations

import msgspec
import pytest

from services.control.spark.run.lock import MARGIN_S, TURN_S, patience_of
from services.control.spark.run.request import RunRequest, ZooKeeperPlace
from shared.model.group import GroupSettings


def request(job: str, lake: str, group: str = "default") -> RunRequest:
    return RunRequest(
        id="r1",
        job=job,
        kafka="127.0.0.1:1",
        lake=lake,
        jars="",
        group=group,
        group_settings=GroupSettings(),
        streams=1,
        namespace="shop",
    )


def test_in_a_folder_each_job_of_a_group_has_a_lock() -> None:
    """Delta refuses the second of two commits there, so groups do not wait for each other."""
    locks = {request(job, "/lake", group).lock for job in ("lake", "reports") for group in ("a", "b")}

    assert len(locks) == 4


def test_one_run_maintains_the_tables_of_all_groups() -> None:
    """They are the same tables, and `lake` and `reports` may write to them meanwhile."""
    runs = [request("maintain", "/lake", group) for group in ("a", "b")]
    others = [request(job, "/lake", "a") for job in ("lake", "reports", "audit")]

    assert len({run.lock for run in runs}) == 1
    assert not {run.lock for run in runs} & {run.lock for run in others}


def test_on_an_object_store_one_run_writes_at_a_time() -> None:
    """Only the audit, which writes nothing, needs no more than its own lock."""
    locks = {request(job, "s3a://b/lake", group).lock for job in ("lake", "reports") for group in ("a", "b")}

    assert len(locks) == 1
    assert request("audit", "s3a://b/lake").lock == request("audit", "/lake").lock


def test_a_run_waits_for_its_turn_but_not_for_its_like() -> None:
    """It outwaits another job up to its time limit; of two runs of one job the second gives up soon."""
    place = ZooKeeperPlace(servers="z:1", timeout_s=10)
    alone, shared, endless, audit = (
        msgspec.structs.replace(request(job, lake), timeout_s=limit)
        for job, lake, limit in (
            *(("lake", "/lake", 900), ("lake", "s3a://b/lake", 900), ("lake", "s3a://b/lake", None)),
            ("audit", "s3a://b/lake", 900),
        )
    )

    assert patience_of(alone, place) == patience_of(audit, place) == 10 + MARGIN_S
    assert (patience_of(shared, place), patience_of(endless, place)) == (900, TURN_S)


@pytest.mark.parametrize("lake", ["/lake", "s3a://b/lake"])
def test_tables_of_namespaces_are_apart(lake: str) -> None:
    """The folder of a namespace is in the lake."""
    assert request("lake", lake).table("reports", "periods") == f"{lake}/shop/reports/periods"
