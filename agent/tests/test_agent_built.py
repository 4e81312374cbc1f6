"""The minified agent is what `make agent` makes of the source."""

from __future__ import annotations

import os
import subprocess

import pytest

from agent.minify import FOLDER, TERSER, minified

DOWNLOAD_S = 60
ONE_ATTEMPT = {"npm_config_fetch_retries": "0", "npm_config_fetch_timeout": "10000"}


@pytest.fixture
def terser() -> None:
    """Skips the test if npm cannot get the minifier."""
    command, env = [*TERSER, "--version"], os.environ | ONE_ATTEMPT
    try:
        subprocess.run(command, env=env, capture_output=True, check=True, timeout=DOWNLOAD_S)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"there is no terser: {error}")


@pytest.mark.usefixtures("terser")
def test_the_minified_agent_is_built_from_the_source() -> None:
    """Byte for byte: neither a change of the source nor one of the minified file alone goes unnoticed."""
    source = (FOLDER / "agent.js").read_bytes()

    assert minified(source) == (FOLDER / "agent.min.js").read_bytes()
