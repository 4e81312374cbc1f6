"""Control's settings fall back to the environment variables of other programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.control.settings import ControlSettings, lake_for, spark_jars_for, spark_master_for
from shared.service.settings import load


@pytest.mark.parametrize(
    ("environment", "master"),
    [
        ({}, "local[2]"),
        ({"SPARK_MASTER": "spark://there:7077"}, "spark://there:7077"),
        ({"SPARK_MASTER": "spark://there:7077", "BATON_SPARK_MASTER": "local[8]"}, "local[8]"),
    ],
)
def test_the_master_is_ours_then_sparks_then_local(environment: dict[str, str], master: str) -> None:
    """BATON_SPARK_MASTER wins over SPARK_MASTER; without both, two local threads."""
    settings = load(ControlSettings, environment)

    assert spark_master_for(settings, environment) == master


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"BATON_JARS": "/jars"}, "/jars"),
        ({"BATON_CACHE": "/cache"}, "/cache/jars/spark"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/baton/jars/spark"),
        ({}, f"{Path.home()}/.cache/baton/jars/spark"),
    ],
)
def test_the_jars_are_where_baton_jars_puts_them(environment: dict[str, str], folder: str) -> None:
    """Without a setting, they are in the cache that `baton jars` fills."""
    settings = load(ControlSettings, environment)

    assert spark_jars_for(settings, environment) == Path(folder)


def test_a_lake_can_be_an_object_store() -> None:
    """A URL stays as it is; a folder becomes an absolute path."""
    assert lake_for(load(ControlSettings, {"BATON_LAKE": "s3a://lake/here"})) == "s3a://lake/here"
    assert lake_for(load(ControlSettings, {"BATON_LAKE": "lake"})) == f"{Path.cwd()}/lake"
