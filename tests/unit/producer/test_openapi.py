"""Schemathesis checks the producer against its own OpenAPI document, in process, on in-memory sinks.

Requests that the document calls valid are accepted, others rejected, and every answer looks as documented.
`is_expressible` filters what a schema cannot express: lengths in bytes, years, the content of text/plain.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from services.producer.http.access.keys import WriteKeys, parse_keys
from shared.model.form import Form
from tests.conformance import ask, operations_of
from tests.fakes.http import as_asgi
from tests.unit.producer.face import JSON, Producer

OWN = CHECKS.get_by_names(["positive_data_acceptance", "negative_data_rejection"])
"""These checks are made here instead, more exactly: the fragments of a request are rejected one by one."""
ROUTES = ("GET /livez", "GET /readyz", "GET /status", "GET /table", "POST /fragments", "POST /markers")
EXAMPLES = 100


@functools.cache
def document() -> Any:
    """The document as it is served."""
    return schemathesis.openapi.from_asgi("/openapi.json", as_asgi(Producer().face))


def ask_route(label: str, mode: GenerationMode, judge: Callable[[Any, Any], None]) -> None:
    """Checks each answer against the document, then judges it."""

    def one(case: Any) -> None:
        judge(case, case.call_and_validate(excluded_checks=OWN))

    ask(operations_of(document())[label], mode, one, examples=EXAMPLES)


def fragments_in(body: Any) -> list[Any]:
    """The fragments in a JSON body."""
    return body if isinstance(body, list) else [body]


def is_expressible(fragment: dict[str, Any]) -> bool:
    """Whether the schema decides: limits are in bytes, years begin in 1970, and 5.0 is not an integer."""
    time = fragment.get("time")
    return (
        len(fragment.get("key", "").encode()) <= 256
        and len(fragment.get("id", "").encode()) <= 64
        and not isinstance(time, float)
        and not (isinstance(time, str) and time < "1970-01-02")
    )


@pytest.mark.parametrize("label", ROUTES)
def test_requests_that_the_document_calls_valid_are_accepted(label: str) -> None:
    """2xx for valid requests, and every fragment in them is accepted."""

    def judge(case: Any, answer: Any) -> None:
        if case.media_type not in (None, JSON["content-type"]):
            return  # the schema only says that it is a string
        if case.method != "POST":
            assert answer.status_code == 200
        elif label == "POST /markers":
            assert answer.status_code == 200, case.body
        elif not all(map(is_expressible, fragments_in(case.body))):
            assert answer.status_code in (200, 422)
        else:
            assert answer.json() == {"accepted": len(fragments_in(case.body)), "rejected": []}

    ask_route(label, GenerationMode.POSITIVE, judge)


@pytest.mark.parametrize("label", ["POST /fragments", "POST /markers"])
def test_requests_that_the_document_calls_invalid_are_rejected(label: str) -> None:
    """4xx, or a 200 that lists the rejected fragments of an array."""

    def judge(case: Any, answer: Any) -> None:
        if answer.status_code == 200 and case.media_type == JSON["content-type"]:
            assert answer.json().get("rejected"), case.body
        else:
            assert 400 <= answer.status_code < 500 or case.media_type != JSON["content-type"]

    ask_route(label, GenerationMode.NEGATIVE, judge)


def test_every_documented_route_is_tested_or_serves_a_file() -> None:
    """A new route must not be forgotten here."""
    labels = operations_of(document()).keys()

    assert {label for label in labels - set(ROUTES) if "." not in label and label != "GET /try"} == set()


async def test_the_document_has_the_types_encodings_and_headers_of_fragments() -> None:
    """No route answers POST /fragments, so FastAPI does not document it by itself."""
    operation = (await Producer().client.get("/openapi.json")).json()["paths"]["/fragments"]["post"]

    assert set(operation["requestBody"]["content"]) == {form.value for form in Form}
    assert all(word in operation["requestBody"]["description"] for word in ("gzip", "zstd", "chunked"))
    assert set(operation["responses"]["415"]["headers"]) == {"Accept", "Accept-Encoding"}
    for status in ("429", "503"):
        assert set(operation["responses"][status]["headers"]) == {"Retry-After"}


async def test_the_document_says_whether_a_key_is_required() -> None:
    """It lists the three ways to send a key, any of which is enough; and none if no key is required."""
    with_keys = (await Producer(WriteKeys(parse_keys(["k1"]))).client.get("/openapi.json")).json()
    without = (await Producer().client.get("/openapi.json")).json()

    schemes = with_keys["components"]["securitySchemes"]
    for path in ("/fragments", "/markers"):
        ways = [schemes[name] for (name,) in with_keys["paths"][path]["post"]["security"]]
        assert [(way["type"], way.get("in", "header")) for way in ways] == [
            *(("http", "header"), ("apiKey", "header"), ("apiKey", "query"))
        ]
        assert "security" not in without["paths"][path]["post"]
    assert "security" not in with_keys["paths"]["/table"]["get"]
