"""Control is held to its own OpenAPI document by schemathesis, in process, over in-memory sources.

Schemas are derived from the structs that control encodes. But pages are joined from bytes, and parameters and
status codes are written by hand: these tests compare what is sent with what is documented.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
import schemathesis
from fastapi import FastAPI
from schemathesis.engine import events, from_schema

from services.control.core.found import Finished, KeyRow, OpenRow, RecordPage, SessionRow, StreamKeys
from services.control.core.history.group_history import GroupHistory, StreamHistory
from services.control.core.history.queue_history import QueueHistory
from services.control.core.operations.forecasts import Forecast
from services.control.core.operations.operation import Operation
from services.control.core.operations.progress import OperationDetail
from services.control.core.queues import QueueChange, QueueRow
from services.control.core.report.rows import PlanRow, StreamDetail
from services.control.core.runs.run import RunDetail
from services.control.http.api.access.access import Access
from services.control.http.api.access.attempts import Attempts
from services.control.http.api.access.needs import needed_role
from services.control.http.api.access.tokens import Tokens
from services.control.http.api.cluster import GroupPage, MemberPage, ProducerPage
from services.control.http.api.events import EventPage
from services.control.http.api.jobs import JobList, RunPage
from services.control.http.api.operations import OperationPage
from services.control.http.api.queues import DeadLetters, QueuePage
from services.control.http.api.streams import StreamPage
from services.control.http.api.tables import TableList
from services.control.live.view.problems import ProblemList
from tests.conformance import operations_of
from tests.effort import effort
from tests.tables import session, write_sessions
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.sources import small_baton

EXAMPLES = 12
ACTED_ON = ("/queues/{queue}/purge", "/queues/{queue}/redrive")
LISTS = ("/operations", "/queues", "/streams", "/members", "/producers", "/groups", "/runs", "/events")
TOKEN = "admin-0123456789abcdef"
SHOWN = {"Authorization": f"Bearer {TOKEN}"}
MOVE = {"kind": "move", "stream": 1, "to": "b"}


@pytest.fixture
def document(tmp_path: Path) -> Any:
    """The document as it is served, of a control with a lake."""
    write_sessions(tmp_path, [session(1)])
    app = asyncio.run(app_with_a_token(tmp_path, lake=str(tmp_path)))
    return schemathesis.openapi.from_asgi("/openapi.json", app, headers=SHOWN)


def test_the_document_is_valid_and_complete(document: Any) -> None:
    """It follows OpenAPI 3.1; every route has a tag and a summary, every reference leads to a schema."""
    document.validate()
    raw = document.raw_schema
    routes = [route for path in raw["paths"].values() for route in path.values()]

    assert [
        route["operationId"] for route in routes if not (route.get("tags") and route.get("summary"))
    ] == []
    assert refs_in(raw) <= {f"#/components/schemas/{name}" for name in raw["components"]["schemas"]}


def test_the_document_says_which_fields_may_be_missing(document: Any) -> None:
    """Control sends every field of an answer, but leaves out what does not apply to an event."""
    schemas = document.raw_schema["components"]["schemas"]

    for name in ("StreamRow", "CountsRow", "Rates", "RunDetail", "Move"):
        assert set(schemas[name]["required"]) == set(schemas[name]["properties"])
    assert set(schemas["EventRow"]["required"]) == {"id", "at", "group", "kind"}
    assert set(schemas["MoveRequest"]["required"]) == {"kind", "stream", "to"}


def test_the_document_says_which_role_each_call_needs(document: Any) -> None:
    """By the table of the gate, for either way to show a token; what needs another role is named in words."""
    raw = document.raw_schema
    routes = {
        (method.upper(), path): route
        for path, of_path in raw["paths"].items()
        for method, route in of_path.items()
    }

    assert raw["components"]["securitySchemes"].keys() == {"token", "login"}
    for (method, path), route in routes.items():
        role = needed_role(method, path)
        assert route["security"] == ([{"token": [role]}, {"login": [role]}] if role else [])
        assert "Needs" in route["description"]
    assert routes["GET", "/livez"]["security"] == []
    assert routes["DELETE", "/runs/{run_id}"]["security"][0] == {"token": ["operate"]}
    assert "`/jobs/maintain/runs` needs `admin`" in routes["POST", "/jobs/{name}/runs"]["description"]


@pytest.mark.parametrize("is_read", [True, False], ids=["read", "unread"])
def test_every_answer_is_documented(is_read: bool, tmp_path: Path) -> None:
    """In every phase of schemathesis; also before the cluster has been read, when most answers are 503.

    What needs a role according to the document is refused to a caller without a token, or with a wrong one.
    """
    app = asyncio.run(app_with_a_token(tmp_path, is_read=is_read))
    off = {"enabled": False}
    checks = {"use_after_free": off}  # DELETE cancels a run, which GET still shows
    if not is_read:
        checks["not_a_server_error"] = off
    # one schema for the parameters of all jobs, the columns and cursors of all lists; keys used before
    one_schema = {"positive_data_acceptance": off}
    config: dict[str, Any] = {
        "seed": 1,
        "headers": SHOWN,
        "generation": {"max-examples": effort(EXAMPLES), "database": "none"},
        "phases": {phase: {"enabled": is_read} for phase in ("fuzzing", "stateful")},
        "checks": checks,
        "operations": [
            {"include-path": path, "checks": checks | one_schema}
            for path in ("/jobs/{name}/runs", "/keys", "/sessions", *ACTED_ON, *LISTS)
        ],
    }
    document = schemathesis.openapi.from_asgi(
        "/openapi.json", app, config=schemathesis.Config.from_dict(config), headers=SHOWN
    )

    assert faults_found_in(document) == set()


async def app_with_a_token(folder: Path, *, is_read: bool = True, lake: str = "no-lake") -> FastAPI:
    """Control on the small Baton, which refuses however many wrong tokens one by one."""
    file, moments = folder / "tokens", itertools.count()
    file.write_text(f"{TOKEN} admin name=ann")
    access = Access(Tokens(file), attempts=Attempts(lambda: next(moments)))
    await access.step()
    return await app_of(small_baton(), InMemoryRunner(), is_read=is_read, lake=lake, access=access)


def faults_found_in(document: Any) -> set[tuple[str, str, str]]:
    """What schemathesis finds: operation, fault and details."""
    found: set[tuple[str, str, str]] = set()
    for event in from_schema(document).execute():
        assert not isinstance(event, events.NonFatalError | events.FatalError), event
        if isinstance(event, events.ScenarioFinished):
            for checks in event.recorder.checks.values():
                failures = [check.failure_info.failure for check in checks if check.failure_info]
                found.update((event.recorder.label, one.title, one.message) for one in failures)
    return found


def test_every_struct_is_what_is_sent(document: Any) -> None:
    """Real answers conform to the document and hold no field besides: a struct is the only description."""
    operations = operations_of(document)

    def answer_to(label: str, struct: type, body: Any = None, query: Any = None, **path: str) -> Any:
        sent = {"body": body, "media_type": "application/json"} if body else {}
        sent |= {"query": query} if query else {}
        answer = operations[label].Case(path_parameters=path, **sent).call_and_validate(headers=SHOWN)
        assert answer.status_code < 300
        as_struct = msgspec.json.encode(msgspec.json.decode(answer.content, type=struct))
        assert msgspec.json.decode(as_struct) == answer.json()
        return answer.json()

    run = answer_to("POST /jobs/{name}/runs", RunDetail, {"top": 3}, name="reports")
    forecast = answer_to("POST /operations", Forecast, MOVE | {"dry_run": True})
    operation = answer_to("POST /operations", Operation, MOVE)
    answer_to("GET /streams", StreamPage)
    answer_to("GET /streams/{stream}", StreamDetail, stream="0")
    answer_to("GET /members", MemberPage)
    answer_to("GET /producers", ProducerPage)
    answer_to("GET /groups", GroupPage)
    answer_to("GET /plan", PlanRow)
    answer_to("GET /events", EventPage)
    answer_to("GET /history", GroupHistory)
    answer_to("GET /streams/{stream}/history", StreamHistory, stream="0")
    answer_to("GET /problems", ProblemList)
    answer_to("GET /queues", QueuePage)
    answer_to("GET /queues/{queue}", QueueRow, queue="mail")
    answer_to("GET /queues/{queue}/history", QueueHistory, queue="mail")
    answer_to("GET /queues/{queue}/letters", DeadLetters, queue="mail")
    answer_to("POST /queues/{queue}/purge", QueueChange, {"dry_run": True}, queue="mail")
    answer_to("POST /queues/{queue}/redrive", QueueChange, {"reason": "mended"}, queue="mail")
    answer_to("GET /jobs", JobList)
    answer_to("GET /runs", RunPage)
    answer_to("GET /runs/{run_id}", RunDetail, run_id=run["id"])
    answer_to("DELETE /runs/{run_id}", RunDetail, run_id=run["id"])
    answer_to("GET /tables", TableList)
    answer_to("GET /keys", KeyRow, query={"key": "ann"})
    answer_to("GET /sessions", Finished, query={"day": "2023-11-15"})
    answer_to("GET /sessions/{session_id}", SessionRow, session_id=f"{1:032x}")
    answer_to("GET /streams/{stream}/open", OpenRow, stream="0")
    answer_to("GET /streams/{stream}/keys", StreamKeys, stream="0")
    answer_to("GET /streams/{stream}/fragments", RecordPage, stream="0")
    answer_to("GET /operations", OperationPage)
    answer_to("GET /operations/{operation_id}", OperationDetail, operation_id=operation["id"])
    assert operation["moves"] == forecast["moves"] != []


def refs_in(value: Any) -> set[str]:
    """Every `$ref` in a part of the document."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return set()
    return {value["$ref"]} if "$ref" in value else set().union(*map(refs_in, value.values()))
