"""Control's HTTP face: pages from memory, refusals as problem documents, runs and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import FastAPI

from services.control.core.runs.jobs import JOBS, parse_parameters
from services.control.core.runs.run import JobAlreadyRunning, LogPart, Run, RunState, Submission, UnknownRun
from services.control.core.runs.schedules import Retry, Schedule
from services.control.http.api.access.access import Access
from services.control.http.api.bodies import MAX_BODY_BYTES
from services.control.http.app import Parts, create_app
from services.control.http.console.live.snapshots import LiveHub
from services.control.http.console.live.work import WorkLog, work_in
from services.control.http.console.pages.routes import scene_of
from services.control.live.acts.actions import Actions
from services.control.live.acts.operations import Operations
from services.control.live.feed.feed import EventFeed
from services.control.live.look_ups import LookUp
from services.control.live.metrics import registry_for
from services.control.live.queues.history import QueueHours
from services.control.live.queues.queues import Queues
from services.control.live.runs.scheduler import Scheduler
from services.control.live.view.cluster_view import ClusterView
from services.control.live.view.history import History
from services.control.live.view.problems import Problems
from services.control.ports import JobRunner, OwnerSource, RecordSource
from services.control.tables.lake import Lake
from services.control.tables.reader import TableReader
from services.control.tables.sessions import LakeSessions
from shared.model.events import Event, encode_event
from shared.model.group import GroupSettings
from shared.model.routing import initial_table
from tests.unit.control.groups_world import groups_over
from tests.unit.control.looked_up import InMemoryOwners, InMemoryRecords
from tests.unit.control.operators_world import OperatorsWorld
from tests.unit.control.sources import Sources, small_baton

HANDOVER = Event(
    at=7, group="default", kind="handover", stream=0, epoch=3, source="m2", target="m1", warm=True
)


@dataclass
class InMemoryRunner:
    """A `JobRunner` whose runs do nothing."""

    known: dict[str, Run] = field(default_factory=dict)
    submissions: list[Submission] = field(default_factory=list)

    async def start(self, submission: Submission) -> Run:
        for run in self.known.values():
            if run.job == submission.job and not run.has_ended:
                raise JobAlreadyRunning(run.id, run.job)
        run = Run(
            id=f"r{len(self.known)}",
            job=submission.job,
            group=submission.group,
            parameters=submission.parameters,
            state="starting",
            started_at=5,
            timeout_s=submission.timeout_s or 60,
            **msgspec.structs.asdict(submission.cause),
        )
        self.known[run.id] = run
        self.submissions.append(submission)
        return run

    def runs(self) -> Sequence[Run]:
        return list(reversed(self.known.values()))

    def run_of(self, run_id: str) -> Run:
        if run_id not in self.known:
            raise UnknownRun(f"there is no run {run_id!r}")
        return self.known[run_id]

    def result_of(self, run_id: str) -> Any:
        return {"answer": 42} if self.run_of(run_id).state == "succeeded" else None

    def log_of(self, run_id: str, after: int | None) -> LogPart:
        text = b"a line of " + self.run_of(run_id).id.encode()
        first = min(after or 0, len(text))
        return LogPart(first=first, next=len(text), size=len(text), text=text[first:].decode())

    async def cancel(self, run_id: str) -> Run:
        run = self.run_of(run_id)
        self.known[run_id] = run if run.has_ended else run.ended("cancelled", 9)
        return self.known[run_id]


@dataclass
class Face:
    """The app on a small Baton, and a client of it."""

    sources: Sources
    runner: InMemoryRunner
    events: list[Event]
    http: httpx.AsyncClient

    async def get(self, path: str, **query: str | int) -> dict[str, Any]:
        """The JSON of a 200."""
        response = await self.http.get(path, params=query)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer


async def app_of(
    sources: Sources,
    runner: JobRunner,
    *,
    is_read: bool = True,
    lake: str = "no-lake",
    schedules: Sequence[Schedule] = (),
    access: Access | None = None,
    events: list[Event] | None = None,
    owners: OwnerSource | None = None,
    records: RecordSource | None = None,
    root_path: str = "",
    proxies: Sequence[str] = (),
) -> FastAPI:
    """The app on the sources, after one reading of them."""
    feed, world = EventFeed(), OperatorsWorld(events=events)
    view = sources.view(ownership_history=feed.recent_events.ownership_history)
    if is_read:
        feed.receive(enumerate((b"not an event", encode_event(HANDOVER))))
        feed.mark_current()
        await view.step()
        await world.look()
    queues = Queues(sources.queues, world.actions, clock=lambda: sources.now_s)
    if is_read:
        await queues.step()
    return app_on(
        view,
        feed,
        runner,
        queues=queues,
        operations=world.operations,
        actions=world.actions,
        lake=lake,
        schedules=schedules,
        access=access,
        owners=owners,
        records=records,
        root_path=root_path,
        proxies=proxies,
    )


def app_on(
    view: ClusterView,
    feed: EventFeed,
    runner: JobRunner,
    *,
    operations: Operations | None = None,
    actions: Actions | None = None,
    lake: str = "no-lake",
    schedules: Sequence[Schedule] = (),
    now_ms: Callable[[], int] = lambda: 7_200_000,
    access: Access | None = None,
    owners: OwnerSource | None = None,
    records: RecordSource | None = None,
    history: History | None = None,
    queues: Queues | None = None,
    problems: Problems | None = None,
    paint_s: float = 0.01,
    root_path: str = "",
    proxies: Sequence[str] = (),
) -> FastAPI:
    """The app on a view and a feed; `operations` may be those of another world."""
    spare, tables = OperatorsWorld(), TableReader(Lake(lake, ""))
    operations = operations or spare.operations
    registry = registry_for(view, runner, feed)
    work = WorkLog(lambda: work_in(runner.runs(), operations.all(), now_ms()))
    history = history or History(view, list, lambda _: None, writer="here")
    history.step()
    queues = queues or Queues(None, actions or spare.actions)
    queue_hours = QueueHours(queues, lambda _: None, writer="here")
    queue_hours.step()
    problems = problems or Problems(view, runner, list, queues=queues.known)
    parts = Parts(
        view=view,
        feed=feed,
        hub=LiveHub(scene_of(view, problems, now_ms, queues=queues.known), feed, every_s=paint_s, work=work),
        operations=operations,
        groups=groups_over(view, operations, spare.znodes),
        actions=actions or spare.actions,
        runner=runner,
        lake=tables,
        look_up=LookUp(
            view, owners or InMemoryOwners(), records or InMemoryRecords(), LakeSessions(tables), list
        ),
        freshness=list,
        history=history,
        problems=problems,
        queues=queues,
        queue_hours=queue_hours,
        scheduler=Scheduler(
            schedules, runner, view, actions or spare.actions, Retry(most=2, pause_s=60), now_ms=now_ms
        ),
        registry=registry,
    )
    # schemathesis calls control `testserver`, and has no address
    access = access or Access(is_open=True)
    hosts = ["control", "testserver"]
    return create_app(parts, hosts=hosts, access=access, root_path=root_path, proxies=proxies)


async def face_of(sources: Sources, *, is_read: bool = True) -> Face:
    """The app on the sources, and a client."""
    runner = InMemoryRunner()
    events: list[Event] = []
    app = await app_of(sources, runner, is_read=is_read, events=events)
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control")
    return Face(sources, runner, events, http)


@pytest.fixture
async def face() -> AsyncIterator[Face]:
    face = await face_of(small_baton())
    async with face.http:
        yield face


async def test_streams_are_one_array_with_totals(face: Face) -> None:
    """The answer is an object with one named array; the totals are those of the whole group."""
    answer = await face.get("/streams")

    assert [row["stream"] for row in answer["streams"]] == [0, 1, 2, 3]
    assert answer["streams"][0]["lag"] == 10
    assert answer["totals"]["lag"] == 150
    assert answer["stale_ms"] == 0


async def test_a_stream_shows_its_owners_and_its_last_handover(face: Face) -> None:
    """Its detail lists the owners, its row has the handover; other streams have neither."""
    rows = (await face.get("/streams"))["streams"]
    owners = [(await face.get(f"/streams/{n}"))["owners"] for n in range(2)]

    assert [[owner["owner"] for owner in each] for each in owners] == [["m1"], []]
    assert (rows[0]["last_handover"]["from"], rows[0]["last_handover"]["to"]) == ("m2", "m1")
    assert [row["last_handover"] for row in rows[1:]] == [None, None, None]


async def test_pages_add_up_to_the_whole_list(face: Face) -> None:
    """`limit` and `after` page through without a gap; the totals do not depend on the page."""
    whole = await face.get("/streams")
    paged, after = [], -1
    while page := (await face.get("/streams", limit=3, after=after))["streams"]:
        paged += page
        after = page[-1]["stream"]

    assert paged == whole["streams"]
    assert (await face.get("/streams", limit=1))["totals"] == whole["totals"]


@pytest.mark.parametrize(
    ("query", "streams"),
    [
        ("sort=-lag", [3, 2, 0, 1]),
        ("sort=open_sessions", [0, 1, 2, 3]),
        ("owner=m1", [0, 1]),
        ("owner=m1&owner=m2&sort=-stream", [2, 1, 0]),
        ("state=unowned", [3]),
        ("state=running&state=unowned", [0, 3]),
        ("pinned=true", []),
        ("pinned=false&limit=2", [0, 1]),
    ],
)
async def test_streams_are_filtered_and_sorted(face: Face, query: str, streams: list[int]) -> None:
    """By the server; what is unknown comes last, and the totals stay those of the group."""
    answer = (await face.http.get(f"/streams?{query}")).json()

    assert [row["stream"] for row in answer["streams"]] == streams
    assert answer["totals"]["streams"] == 4


@pytest.mark.parametrize("path", ["/streams", "/members", "/runs", "/operations"])
async def test_a_list_continues_after_a_cursor(face: Face, path: str) -> None:
    """`next` of each page; null at the end. Of another list, order or filter it is refused."""
    for job in ("lake", "reports", "audit"):
        await face.http.post(f"/jobs/{job}/runs", json={})
    for _ in range(3):
        await face.http.post("/operations", json={"kind": "rebalance"})
    name = path[1:]
    whole = (await face.get(path))[name]
    page = await face.get(path, limit=1)
    found = page[name]
    while page["next"] is not None:
        before, page = page, await face.get(path, limit=1, cursor=page["next"])
        found += page[name]
    other = await face.http.get(path, params={"cursor": before["next"], "state": "running"})

    assert found == whole
    assert len(whole) > 1
    assert other.status_code == 422


@pytest.mark.parametrize(
    ("path", "where", "known"),
    [
        ("/streams?sort=-size", "query.sort", "open_sessions"),
        ("/members?sort=rates", "query.sort", "fragments_per_s"),
        ("/runs?sort=x", "query.sort", "started_at"),
        ("/operations?sort=x", "query.sort", "since"),
        ("/streams?onwer=m1", "query.onwer", "owner"),
        ("/events?strem=1", "query.strem", "stream"),
    ],
)
async def test_unknown_columns_and_parameters_are_refused_with_the_known_ones(
    face: Face, path: str, where: str, known: str
) -> None:
    """A misspelt filter would select everything unnoticed."""
    answer = await face.http.get(path)
    (fault,) = answer.json()["errors"]

    assert (answer.status_code, fault["in"]) == (422, where)
    assert known in fault["detail"]


async def test_members_and_runs_are_filtered_and_sorted(face: Face) -> None:
    """Members by what they do; runs by job and state, newest first."""
    for job in ("lake", "reports"):
        await face.http.post(f"/jobs/{job}/runs", json={})
    await face.http.delete("/runs/r0")

    async def ids(path: str) -> list[str]:
        return [row["id"] for row in (await face.http.get(path)).json()[path[1:].partition("?")[0]]]

    assert await ids("/members?sort=-streams") == ["m1", "m2"]
    assert await ids("/members?sort=-lease_ms,-id") == ["m1", "m2"]
    assert await ids("/members?answering=false") == ["m2"]
    assert await ids("/runs?sort=job") == ["r0", "r1"]
    assert await ids("/runs?job=reports") == await ids("/runs?state=starting") == ["r1"]


async def test_what_an_owner_does_not_say_is_null(face: Face) -> None:
    """Of a silent member, and of a stream whose owner has not reported its epoch yet."""
    rows = (await face.get("/streams"))["streams"]
    members = {row["id"]: row for row in (await face.get("/members"))["members"]}
    detail = await face.get("/streams/2")

    assert [row["open_sessions"] for row in rows] == [7, None, None, None]
    assert [row["state_bytes"] for row in rows] == [700, None, None, None]
    assert (detail["covered"], detail["cut"], detail["failures"]) == (None, None, None)
    assert (members["m2"]["rates"], members["m2"]["paused"], members["m2"]["lease_ms"]) == (None, None, None)
    assert members["m1"]["rates"] is not None


@pytest.mark.parametrize(
    ("path", "name", "ids"),
    [("/members", "id", ["m1", "m2"]), ("/producers", "id", ["p1"]), ("/groups", "name", ["default"])],
)
async def test_lists_page_by_name(face: Face, path: str, name: str, ids: list[str]) -> None:
    """Members, producers and groups are sorted, and a page continues after a name."""
    rows = (await face.get(path))[path[1:]]
    rest = (await face.get(path, after=ids[0], limit=1))[path[1:]]

    assert [row[name] for row in rows] == ids
    assert [row[name] for row in rest] == ids[1:2]


async def test_a_page_of_groups_has_at_most_limit_rows() -> None:
    """The rest follows after the last name."""
    sources = small_baton()
    groups = sources.cluster.cluster.groups
    sources.cluster.cluster = replace(sources.cluster.cluster, groups={**groups, "fraud": groups["default"]})
    face = await face_of(sources)

    async with face.http:
        pages = [(await face.get("/groups", limit=1, after=after))["groups"] for after in ("", "default")]

    assert [[row["name"] for row in page] for page in pages] == [["default"], ["fraud"]]


async def test_groups_are_sorted_by_control() -> None:
    """By any column; a page names the next one, and a parameter that does not exist is refused."""
    sources = small_baton()
    groups = sources.cluster.cluster.groups
    sources.cluster.cluster = replace(sources.cluster.cluster, groups={**groups, "fraud": groups["default"]})
    face = await face_of(sources)

    async with face.http:
        first = await face.get("/groups", sort="-name", limit=1)
        last = await face.get("/groups", sort="-name", limit=1, cursor=first["next"])
        refused = await face.http.get("/groups", params={"owner": "m1"})

    assert [row["name"] for row in first["groups"] + last["groups"]] == ["fraud", "default"]
    assert last["next"] is None
    assert refused.status_code == 422


async def test_producers_can_be_filtered_by_whether_they_answer(face: Face) -> None:
    """Those that do not are what an operator looks for."""
    every = (await face.get("/producers", sort="-since"))["producers"]
    found = {word: (await face.get("/producers", answering=word))["producers"] for word in ("true", "false")}

    assert found["true"] + found["false"] == every != []
    assert {row["answers"] for row in found["true"]} <= {True}
    assert {row["answers"] for row in found["false"]} <= {False}


async def test_members_can_be_filtered_by_group(face: Face) -> None:
    """Only members of this group are listed."""
    assert len((await face.get("/members", group="default"))["members"]) == 2


async def test_no_request_reads_a_source(face: Face) -> None:
    """Only the refresh reads: no request reaches ZooKeeper, Kafka or a member."""
    before = face.sources.reads

    paths = "streams streams/0 members producers groups plan metrics runs events readyz"
    for path in paths.split():
        assert (await face.http.get(f"/{path}")).status_code == 200

    assert face.sources.reads == before


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/streams?group=nobody", 404, "unknown-group"),
        ("GET", "/streams/0?group=nobody", 404, "unknown-group"),
        ("GET", "/members?group=nobody", 404, "unknown-group"),
        ("GET", "/events?group=nobody", 404, "unknown-group"),
        ("GET", "/streams/4", 404, "unknown-stream"),
        ("GET", "/streams/x", 422, "invalid-input"),
        ("GET", "/plan?group=nobody", 404, "unknown-group"),
        ("GET", "/nothing", 404, "not-found"),
        ("POST", "/streams", 405, "method-not-allowed"),
        ("GET", "/runs/r9", 404, "unknown-run"),
        ("GET", "/runs?after=r9", 404, "unknown-run"),
        ("DELETE", "/runs/r9", 404, "unknown-run"),
        ("POST", "/jobs/nothing/runs", 404, "unknown-job"),
        ("POST", "/jobs/lake/runs?group=nobody", 404, "unknown-group"),
    ],
)
async def test_refusals_are_problem_documents(
    face: Face, method: str, path: str, status: int, kind: str
) -> None:
    """Every refusal has its status, its type and a sentence."""
    response = await face.http.request(method, path)

    assert (response.status_code, response.json()["type"]) == (status, f"urn:baton:{kind}")
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["detail"]


@pytest.mark.parametrize("path", ["/streams", "/members", "/groups", "/plan"])
async def test_before_the_first_reading_the_answer_is_503(path: str) -> None:
    """The client should come back later: an empty list would mislead."""
    face = await face_of(small_baton(), is_read=False)
    async with face.http:
        response = await face.http.get(path)
        ready = await face.http.get("/readyz")
        live = await face.http.get("/livez")

    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert (ready.status_code, live.status_code) == (503, 200)


async def test_control_is_ready_only_once_the_operations_can_be_shown() -> None:
    """They are read beside the view, so either may come first; until then their page is a 503."""
    sources, world = small_baton(), OperatorsWorld()
    view = sources.view()
    await view.step()
    app = app_on(view, EventFeed(), InMemoryRunner(), operations=world.operations)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 50_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http:
        before = [(await http.get(path)).status_code for path in ("/readyz", "/operations")]
        await world.look()
        after = [(await http.get(path)).status_code for path in ("/readyz", "/operations")]

    assert (before, after) == ([503, 503], [200, 200])


async def test_a_run_is_started_followed_and_cancelled(face: Face) -> None:
    """202 with a Location, where GET shows it and DELETE cancels it."""
    response = await face.http.post("/jobs/reports/runs", json={"top": 3})

    assert response.status_code == 202
    run = response.json()
    assert response.headers["location"] == f"/runs/{run['id']}"
    assert run["parameters"] == parse_parameters(JOBS["reports"], {"top": 3})
    assert (await face.get(f"/runs/{run['id']}")) == run
    assert (await face.http.delete(f"/runs/{run['id']}")).json()["state"] == "cancelled"
    (submission,) = face.runner.submissions
    table = initial_table(4).encode().decode()
    assert (submission.settings, submission.streams, submission.stream_table) == (GroupSettings(), 4, table)


async def test_a_second_run_of_a_job_is_a_conflict(face: Face) -> None:
    """409: the caller should look again, not retry. A run needs no body."""
    first, second = [await face.http.post("/jobs/lake/runs") for _ in range(2)]

    assert (first.status_code, second.status_code) == (202, 409)
    assert second.json()["type"] == "urn:baton:job-already-running"
    assert second.json()["run"] == first.json()["id"]
    assert second.headers["link"] == f'<{first.headers["location"]}>; rel="related"'


async def test_a_run_is_started_once_under_one_key(face: Face) -> None:
    """The same request returns the same run, whatever has become of it; another request is refused."""
    path, key = "/jobs/reports/runs", {"Idempotency-Key": "k"}
    first = await face.http.post(path, json={"top": 3}, headers=key)
    await face.http.delete(f"/runs/{first.json()['id']}")
    again = await face.http.post(path, json={"top": 3}, headers=key)
    other = await face.http.post(path, json={"top": 4}, headers=key)
    new = await face.http.post(path, json={"top": 4}, headers={"Idempotency-Key": "l"})

    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert again.headers["location"] == first.headers["location"]
    assert (other.status_code, other.json()["type"]) == (422, "urn:baton:key-reused")
    assert (new.status_code, len(face.runner.known)) == (202, 2)


async def test_a_key_that_arrives_twice_at_once_starts_one_run(face: Face) -> None:
    """Also while the first request still starts its driver: nobody gets a 409 for his own run."""
    start = face.runner.start

    async def slowly(submission: Submission) -> Run:
        await asyncio.sleep(0)
        return await start(submission)

    face.runner.start = slowly  # type: ignore[method-assign]
    key = {"Idempotency-Key": "k"}
    answers = await asyncio.gather(*(face.http.post("/jobs/lake/runs", headers=key) for _ in range(3)))

    assert [answer.status_code for answer in answers] == [202] * 3
    assert {answer.json()["id"] for answer in answers} == {"r0"}
    assert len(face.events) == 1


async def test_starting_and_cancelling_a_run_are_events(face: Face) -> None:
    """Who did what, and why; a repeated request does nothing, so it is no event."""
    key = {"Idempotency-Key": "k"}
    for _ in range(2):
        run = (await face.http.post("/jobs/lake/runs?reason=late", headers=key)).json()
    for _ in range(2):
        await face.http.delete(f"/runs/{run['id']}", params={"reason": "enough"})

    told = [(event.kind, event.who, event.what, event.why, event.run) for event in face.events]
    assert told == [
        ("action", "anybody", "run lake", "late", run["id"]),
        ("action", "anybody", "cancel lake", "enough", run["id"]),
    ]
    assert (run["who"], run["reason"]) == ("anybody", "late")


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (rb'{"item_path": "$[\'\ud800\']"}', 422),
        (rb'{"item_path": "\ud800"}', 422),
        (rb'{"\ud800": 1}', 422),
        (b'{"item_path": "$..x"}', 422),
        (b'{"top": 3.5}', 422),
        (b"[" * MAX_BODY_BYTES, 422),
        (b" " * (MAX_BODY_BYTES + 1), 413),
        (b"{", 422),
        (b'{"item_path": "\xff"}', 400),
        (b'{"top": 3.0}', 202),
        (b"null", 202),
    ],
)
async def test_bad_parameters_are_refused_with_a_problem_document(
    face: Face, content: bytes, status: int
) -> None:
    """Half of a surrogate pair is JSON to some, but no answer could repeat it. The size is bounded."""
    headers = {"content-type": "application/json"}
    answer = await face.http.post("/jobs/reports/runs", content=content, headers=headers)

    assert answer.status_code == status
    if status != 202:
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_bug_answers_with_a_problem_document() -> None:
    """A 500 has the form of every other refusal."""
    app = await app_of(small_baton(), InMemoryRunner())
    app.add_api_route("/bug", lambda: 1 // 0)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://control") as http:
        answer = await http.get("/bug")

    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert answer.json()["type"] == "urn:baton:internal-server-error"


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/runs/r9", "DELETE, GET, HEAD"),
        ("/operations", "GET, HEAD, POST"),
        ("/jobs/lake/runs", "POST"),
        ("/livez", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_learns_every_right_one(face: Face, path: str, allow: str) -> None:
    """`Allow` lists the methods of all routes at the path."""
    answer = await face.http.put(path)

    assert (answer.status_code, answer.headers["allow"]) == (405, allow)


async def test_head_is_answered_as_get_without_a_body(face: Face) -> None:
    """With the status and the headers of GET; also where the body of GET has no end."""
    run = (await face.http.post("/jobs/lake/runs")).json()["id"]
    paths = ["/streams", "/streams/0", "/streams/9", "/members", "/producers", "/groups", "/plan", "/events"]
    paths += ["/operations", "/jobs", "/runs", f"/runs/{run}", "/livez", "/readyz", "/docs", "/openapi.json"]
    for path in paths:
        got, head = await face.http.get(path), await face.http.head(path)
        # not the values: the length depends on the digits of `stale_ms`
        assert (head.status_code, [*head.headers], head.content) == (got.status_code, [*got.headers], b""), (
            path
        )
    followed = await face.http.head("/events", headers={"accept": "text/event-stream"})

    assert followed.headers["content-type"].startswith("text/event-stream")
    assert "baton_event_followers 0.0" in (await face.http.get("/metrics")).text


async def test_all_faulty_parameters_are_listed(face: Face) -> None:
    """One answer names every fault and its parameter."""
    response = await face.http.post("/jobs/reports/runs", json={"tip": 1, "top": "many"})

    assert (response.status_code, response.json()["type"]) == (422, "urn:baton:parameters-invalid")
    assert [fault["in"] for fault in response.json()["errors"]] == ["tip", "top"]


async def test_lists_of_runs_leave_results_out(face: Face) -> None:
    """Results may be large, so only a run's own page shows its result."""
    run = (await face.http.post("/jobs/lake/runs")).json()
    face.runner.known[run["id"]] = face.runner.known[run["id"]].ended("succeeded", 9)

    listed = (await face.get("/runs"))["runs"]

    assert "result" not in listed[0]
    assert (await face.get(f"/runs/{run['id']}"))["result"] == {"answer": 42}


async def test_runs_are_paged_from_the_newest(face: Face) -> None:
    """`after` continues with the runs that started before it."""
    for job in (await face.get("/jobs"))["jobs"]:
        await face.http.post(f"/jobs/{job['name']}/runs")

    first = (await face.get("/runs", limit=2))["runs"]
    rest = (await face.get("/runs", limit=2, after=first[-1]["id"]))["runs"]

    assert [run["id"] for run in [*first, *rest]] == ["r3", "r2", "r1", "r0"]
    face.runner.known |= {f"{n}": face.runner.known["r0"] for n in range(100)}
    assert len((await face.get("/runs"))["runs"]) == 100


async def test_metrics_report_lag_and_runs(face: Face) -> None:
    """Prometheus gets the same numbers, and no ids as labels."""
    await face.http.post("/jobs/lake/runs")

    text = (await face.http.get("/metrics")).text

    assert 'baton_lag_fragments{group="default"} 150.0' in text
    assert 'baton_streams_unowned{group="default"} 1.0' in text
    assert 'baton_streams_failing{group="default"} 0.0' in text
    assert 'baton_runs{job="lake",state="starting"} 1.0' in text
    assert "baton_unreadable_znodes 0.0" in text
    assert "baton_events_unreadable_total 1.0" in text
    assert "baton_event_followers 0.0" in text


async def test_what_is_unknown_of_a_stream_is_in_no_metric_as_0() -> None:
    """Its lag is left out of the sum, and its status is UNKNOWN."""
    sources = small_baton()
    sources.offsets.leaderless = {3}
    app = await app_of(sources, InMemoryRunner())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as http:
        text = (await http.get("/metrics")).text

    assert 'baton_lag_fragments{group="default"} 50.0' in text
    assert 'baton_streams{group="default",status="UNKNOWN"} 1.0' in text


async def test_the_last_hour_is_columns_of_equal_length(face: Face) -> None:
    """Of the group and of a stream; what was not sampled is null."""
    group, stream = await face.get("/history"), await face.get("/streams/0/history")

    columns = [*(group[name] for name in ("lag", "fragments_per_s", "unowned")), stream["lag"]]
    assert {len(column) for column in columns} == {240}
    assert (group["lag"][-1], group["lag"][-2], stream["lag"][-1]) == (150, None, 10)
    assert (group["step_ms"], group["from"] % 15_000, group["from"]) == (15_000, 0, stream["from"])
    for path in (
        "/history?group=no",
        "/streams/0/history?group=no",
        "/streams/9/history",
        "/problems?group=no",
    ):
        assert (await face.http.get(path)).status_code == 404


async def test_problems_are_answered_before_the_cluster_was_read() -> None:
    """That it cannot be read is the problem; the history has nothing to show yet."""
    face = await face_of(small_baton(), is_read=False)
    async with face.http:
        answer = await face.get("/problems")
        history = await face.http.get("/history")

    assert {problem["kind"] for problem in answer["problems"]} == {"source-unread"}
    assert answer["last_audit"] is None
    assert history.status_code == 503


async def test_the_last_audit_is_named(face: Face) -> None:
    """With its run; a run that fails is a problem until the next one of its job."""
    ends: list[tuple[str, RunState]] = [
        ("audit", "succeeded"),
        ("lake", "failed"),
        ("reports", "failed"),
        ("reports", "succeeded"),
    ]
    for job, state in ends:
        run_id = (await face.http.post(f"/jobs/{job}/runs")).json()["id"]
        face.runner.known[run_id] = face.runner.known[run_id].ended(state, 9)

    answer = await face.get("/problems")

    assert (answer["last_audit"]["run"], answer["last_audit"]["is_sound"]) == ("r0", None)
    assert [problem["run"] for problem in answer["problems"] if problem["kind"] == "run-failed"] == ["r1"]
