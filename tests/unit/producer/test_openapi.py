"""The producer is held to its own OpenAPI document by schemathesis, in process, on sinks in memory.

What the document calls valid is taken, what it does not is refused, and every answer looks as it says. What a
schema cannot say (bytes, years, what text/plain holds) is told apart by `is_sayable`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from tests.unit.producer.face import JSON, Producer

load_all_checks()
OWN = CHECKS.get_by_names(["positive_data_acceptance", "negative_data_rejection"])
"""Checks that are made here instead, exactly: fragments of one request are refused one by one."""
ROUTES = ("GET /livez", "GET /readyz", "GET /table", "POST /fragments", "POST /markers")
EXAMPLES = 100


@functools.cache
def document() -> Any:
    """The document as it is served."""
    return schemathesis.openapi.from_asgi("/openapi.json", Producer().door)


def operation(label: str) -> Any:
    """The operation `METHOD /path` of the document."""
    found = {one.ok().label: one.ok() for one in document().get_all_operations()}
    return found[label]


def ask(label: str, mode: GenerationMode, judge: Callable[[Any, Any], None]) -> None:
    """Asks with generated cases, always the same; each answer is held to the document, then judged."""

    def one(case: Any) -> None:
        judge(case, case.call_and_validate(excluded_checks=OWN))

    settings = hypothesis.settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    cases = operation(label).as_strategy(generation_mode=mode)
    with_cases: Callable[[Callable[[Any], None]], Callable[[], None]] = hypothesis.given(cases)
    settings(with_cases(one))()


def fragments_in(body: Any) -> list[Any]:
    """The fragments that a JSON body holds."""
    return body if isinstance(body, list) else [body]


def is_sayable(said: dict[str, Any]) -> bool:
    """Whether the schema has the last word: limits are bytes, years begin in 1970, and 5.0 is no integer."""
    time = said.get("time")
    return (
        len(said.get("key", "").encode()) <= 256
        and len(said.get("id", "").encode()) <= 64
        and not isinstance(time, float)
        and not (isinstance(time, str) and time < "1970-01-02")
    )


@pytest.mark.parametrize("label", ROUTES)
def test_what_the_document_calls_valid_is_taken(label: str) -> None:
    """2xx for valid requests; of fragments each one is accepted, none refused."""

    def judge(case: Any, answer: Any) -> None:
        if case.media_type not in (None, JSON["content-type"]):
            return  # a string by the schema, JSON by its content
        if case.method != "POST":
            assert answer.status_code == 200
        elif not all(map(is_sayable, fragments_in(case.body))):
            assert answer.status_code in (200, 422)
        elif label == "POST /markers":
            assert answer.status_code == 200
        else:
            assert answer.json() == {"accepted": len(fragments_in(case.body)), "rejected": []}

    ask(label, GenerationMode.POSITIVE, judge)


@pytest.mark.parametrize("label", ["POST /fragments", "POST /markers"])
def test_what_the_document_does_not_call_valid_is_refused(label: str) -> None:
    """4xx, or a 200 that names the fragments of an array that were refused."""

    def judge(case: Any, answer: Any) -> None:
        if answer.status_code == 200 and case.media_type == JSON["content-type"]:
            assert answer.json().get("rejected"), case.body
        else:
            assert 400 <= answer.status_code < 500 or case.media_type != JSON["content-type"]

    ask(label, GenerationMode.NEGATIVE, judge)


def test_every_route_of_the_document_is_asked_or_serves_a_file() -> None:
    """A new route must not be left out by chance."""
    labels = {one.ok().label for one in document().get_all_operations()}

    assert {label for label in labels - set(ROUTES) if "." not in label and label != "GET /try"} == set()
