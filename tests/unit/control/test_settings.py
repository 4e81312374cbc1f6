"""Control's settings fall back to the environment variables of other programs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from services.control.__main__ import _access
from services.control.settings import (
    ControlSettings,
    cluster_options_for,
    lake_for,
    spark_jars_for,
    spark_master_for,
)
from shared.errors import InvalidInput, SettingsInvalid
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
        ({"BATON_CACHE": "/c", "BATON_LAKE": "s3a://bucket/lake"}, "/c/jars/spark:/c/jars/s3"),
        ({"BATON_JARS": "/jars:/more"}, "/jars:/more"),
    ],
)
def test_the_jars_are_where_baton_jars_puts_them(environment: dict[str, str], folder: str) -> None:
    """Without a setting, they are in the cache that `baton jars` fills; an object store needs more."""
    settings = load(ControlSettings, environment)

    assert spark_jars_for(settings, environment) == folder


def test_a_lake_can_be_an_object_store() -> None:
    """A URL stays as it is; a folder becomes an absolute path."""
    assert lake_for(load(ControlSettings, {"BATON_LAKE": "s3a://lake/here"}), {}) == "s3a://lake/here"
    assert lake_for(load(ControlSettings, {"BATON_LAKE": "lake"}), {}) == f"{Path.cwd()}/lake"


@pytest.mark.parametrize(
    ("master", "shared", "is_taken"),
    [
        ("local[4]", "0", True),
        ("spark://127.0.0.1:7077", "0", True),
        ("spark://far:7077", "0", False),
        ("yarn", "0", False),
        ("k8s://https://api:6443", "0", False),
        ("spark://far:7077", "1", True),
    ],
)
def test_a_folder_that_executors_do_not_see_is_no_lake(master: str, shared: str, is_taken: bool) -> None:
    """Each would write its part into a folder of its own. An object store is for all."""
    given = {"BATON_LAKE": "lake", "BATON_LAKE_SHARED": shared, "BATON_SPARK_MASTER": master}
    settings = load(ControlSettings, given)

    if is_taken:
        assert lake_for(settings, {}) == f"{Path.cwd()}/lake"
    else:
        with pytest.raises(InvalidInput, match="BATON_LAKE_SHARED=1"):
            lake_for(settings, {})
    assert lake_for(load(ControlSettings, given | {"BATON_LAKE": "s3a://b/l"}), {}) == "s3a://b/l"


def test_every_option_of_spark_is_a_setting() -> None:
    """The sizes of executors have names of their own, and given options go before them."""
    sizes = {"BATON_SPARK_EXECUTOR_MEMORY": "3g", "BATON_SPARK_EXECUTOR_CORES": "2"}
    options = "spark.kubernetes.namespace=data spark.executor.extraJavaOptions='-Da=1 -Db=2'"
    settings = load(ControlSettings, sizes | {"BATON_SPARK_OPTIONS": options})

    assert cluster_options_for(settings) == {
        "spark.executor.memory": "3g",
        "spark.executor.cores": "2",
        "spark.kubernetes.namespace": "data",
        "spark.executor.extraJavaOptions": "-Da=1 -Db=2",
    }
    assert cluster_options_for(load(ControlSettings, {})) == {}


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ("spark.x", "'spark.x' is not spark.name=value"),
        ("hadoop.x=1", "'hadoop.x=1' is not spark.name=value"),
        ("spark.jars=/x", "Baton sets spark.jars itself"),
        ("spark.x='1", "No closing quotation"),
    ],
)
def test_an_option_that_cannot_be_meant_is_a_fault(options: str, fault: str) -> None:
    """Control says so when it starts."""
    with pytest.raises(SettingsInvalid, match=re.escape(f"BATON_SPARK_OPTIONS: {fault}")):
        load(ControlSettings, {"BATON_SPARK_OPTIONS": options})


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, None),
        ({"BATON_CONTROL_OPEN": "1"}, "BATON_CONTROL_OPEN=1: everybody"),
        ({"BATON_HOST": "0.0.0.0", "BATON_CONTROL_OPEN": "1"}, "BATON_CONTROL_OPEN=1: everybody"),
        ({"BATON_HOST": "0.0.0.0"}, "BATON_HOST=0.0.0.0: control has no tokens"),
        ({"BATON_HOST": "0.0.0.0", "BATON_CONTROL_TOKENS_FILE": "tokens"}, None),
        ({"BATON_CONTROL_OPEN": "1", "BATON_CONTROL_TOKENS_FILE": "tokens"}, None),
    ],
)
def test_a_control_without_tokens_says_so_at_its_start(environment: dict[str, str], said: str | None) -> None:
    """Loudly if it is open to everybody; and if it refuses those for whom its address is meant."""
    remarks = load(ControlSettings, environment).remarks()

    assert [(said or "no remark") in remark for remark in remarks] == [True] * (said is not None)


@pytest.mark.parametrize(
    ("environment", "has_tokens", "is_open", "is_read_only"),
    [
        ({}, False, False, False),
        ({"BATON_CONTROL_OPEN": "1"}, False, True, False),
        ({"BATON_READ_ONLY": "1", "BATON_CONTROL_TOKENS_FILE": "tokens"}, True, False, True),
        ({"BATON_CONTROL_OPEN": "1", "BATON_CONTROL_TOKENS_FILE": "tokens"}, True, False, False),
    ],
)
def test_tokens_close_an_open_control(
    environment: dict[str, str], has_tokens: bool, is_open: bool, is_read_only: bool
) -> None:
    """By default nothing is open; a file of tokens counts even beside BATON_CONTROL_OPEN."""
    access = _access(load(ControlSettings, environment))

    assert (access.has_tokens, access.is_open, access.is_read_only) == (has_tokens, is_open, is_read_only)
