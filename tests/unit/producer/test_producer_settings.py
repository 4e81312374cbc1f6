"""The producer rejects settings that cannot work."""

from __future__ import annotations

import pytest

from services.producer.settings import ProducerSettings
from shared.errors import SettingsInvalid
from shared.service.settings import load


@pytest.mark.parametrize(
    ("mapping", "named"),
    [
        ({"BATON_MAX_FRAGMENT_BYTES": "2000", "BATON_MAX_REQUEST_BYTES": "1000"}, "BATON_MAX_FRAGMENT_BYTES"),
        ({"BATON_MAX_FRAGMENT_BYTES": str(900 * 1024 + 1)}, "must fit into a session"),
        (
            {"BATON_MAX_REQUEST_BYTES": "2097152", "BATON_MAX_INFLIGHT_BYTES": "3145728"},
            "BATON_MAX_INFLIGHT_BYTES",
        ),
        ({"BATON_PRODUCER": "a/b"}, "BATON_PRODUCER"),
        ({"BATON_NAMESPACE": "A"}, "BATON_NAMESPACE"),
    ],
)
def test_settings_that_contradict_each_other_are_rejected(mapping: dict[str, str], named: str) -> None:
    """A fragment must fit into a request and a session, a request into what may be in flight."""
    with pytest.raises(SettingsInvalid) as caught:
        load(ProducerSettings, mapping)

    assert any(named in fault for fault in caught.value.faults)


def test_the_number_of_streams_is_optional() -> None:
    """Without BATON_STREAMS a producer uses the stored number."""
    assert load(ProducerSettings, {}).streams is None
    assert load(ProducerSettings, {"BATON_STREAMS": "97"}).streams == 97
