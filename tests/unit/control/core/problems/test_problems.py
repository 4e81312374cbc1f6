"""What is wrong: which facts are problems, in which order, in which words, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import msgspec
import pytest

from services.control.core.found import COUNTED, LEAST_JUDGED, HotKey
from services.control.core.lake.freshness import FreshnessRow
from services.control.core.problems.problems import (
    GRACE_MS,
    RANK,
    Facts,
    Kind,
    ProblemLog,
    ProblemRow,
    problems_in,
)
from services.control.core.report.observed import Answers, Observed
from services.control.core.report.report import report_on
from services.control.core.report.rows import MemberRow, ProducerRow, StreamRow
from services.control.core.runs.last_runs import (
    DIFFERENCES,
    LastAudit,
    failed_last,
    last_audit,
    last_audit_run,
)
from services.control.core.runs.run import Run, RunError, RunState
from services.control.live.feed.feed import EventFeed
from services.control.live.metrics import VERDICTS, registry_for
from services.control.live.view.hot_keys import MOST_STREAMS, HotKeys
from services.control.live.view.problems import Problems
from shared.model.names import DEFAULT_GROUP
from shared.model.rejects import FRAGMENT_REASONS
from tests.unit.control.http.console.runs_desk import Runs
from tests.unit.control.http.test_app import InMemoryRunner
from tests.unit.control.looked_up import InMemoryRecords
from tests.unit.control.sources import MAIL, small_baton

_SOURCES = small_baton()
_REPORT = report_on(
    Observed(
        cluster=_SOURCES.cluster.cluster,
        offsets=_SOURCES.offsets.offsets,
        answers=Answers(statuses=_SOURCES.members.statuses),
    ),
    {},
)
ROW: StreamRow = _REPORT.streams[DEFAULT_GROUP][0]
MEMBER: MemberRow = _REPORT.members[0]
PRODUCER: ProducerRow = msgspec.structs.replace(
    _REPORT.producers[0], answers=True, accepted_per_s=1.0, refused_per_s={}
)
LAKE = FreshnessRow(
    group="default",
    topic="sessions",
    behind_records=1,
    behind_s=600.0,
    oldest_at=1,
    lost_records=0,
    retention_ms=3_600_000,
    loss_in_s=3000.0,
    measured_at=1,
)
AUDIT = LastAudit(
    run="r1", at=77, verdict="exact", is_sound=True, judged=9, part="everything", differences={}
)
FINE: dict[str, Any] = {"rows": [ROW], "members": [MEMBER], "producers": [PRODUCER], "lake": LAKE}


def row(stream: int = 0, **fields: Any) -> StreamRow:
    """The row of a stream that works, with these fields."""
    return msgspec.structs.replace(ROW, stream=stream, **fields)


def member(**fields: Any) -> MemberRow:
    """The row of a member that works, with these fields."""
    return msgspec.structs.replace(MEMBER, **fields)


def producer(**fields: Any) -> ProducerRow:
    """The row of a producer that works, with these fields."""
    return msgspec.structs.replace(PRODUCER, **fields)


def lake(**fields: Any) -> FreshnessRow:
    """A lake that is fresh enough, with these fields."""
    return msgspec.structs.replace(LAKE, **fields)


def found_in(**facts: Any) -> list[ProblemRow]:
    """The problems in what is fine except for these facts."""
    return problems_in(Facts(**(FINE | facts)))


def run(number: int, job: str, state: RunState, group: str = "default", message: str = "") -> Run:
    """A run that has ended."""
    return Run(
        id=f"r{number}",
        job=job,
        group=group,
        parameters={},
        state=state,
        started_at=number,
        timeout_s=1,
        ended_at=number + 1,
        error=RunError(condition="X", message=message) if message else None,
    )


CASES: list[tuple[Kind, dict[str, Any], str]] = [
    ("source-unread", {"unread": {"Kafka cannot be read: away": None}}, "Kafka cannot be read: away."),
    ("no-members", {"members": []}, "No member runs, so no stream is read."),
    ("no-members", {"members": [member(state="draining")]}, "Every member is draining,"),
    ("unowned", {"rows": [row(3, owner=None)]}, "1 stream waits for an owner."),
    ("unowned", {"rows": [row(n, owner=None) for n in range(3)]}, "3 streams wait for an owner."),
    (
        "log-unread",
        {"rows": [ROW, row(7, end=None, lag=None, status=None)]},
        "Stream 7 cannot be read or written: no leader of its log answers, so its lag is not known.",
    ),
    (
        "stream-rewind",
        {"rows": [row(7, status="REWIND", why="the log ends at 5")]},
        "Stream 7 stands still: its log or its head is not the one that it has read: the log ends at 5.",
    ),
    (
        "stream-retrying",
        {"rows": [row(7, state="retrying", why="a bad checksum."), row(8, state="retrying", why="other")]},
        "Stream 7 fails again and again: a bad checksum.",
    ),
    (
        "stream-stop",
        {"rows": [row(7, status="STOP", lag=1204)]},
        "Stream 7 has stopped: no commit, and 1,204 records wait.",
    ),
    (
        "stream-stall",
        {"rows": [row(n, status="STALL", lag=n) for n in range(1, 6)]},
        "Streams 5, 4, 3 and 2 more do not advance: they commit, and 15 records wait.",
    ),
    (
        "stream-behind",
        {"rows": [row(17, status="WARN")]},
        "Stream 17 falls behind: its lag grew at each of the last three commits.",
    ),
    (
        "hot-key",
        {"rows": [row(17, status="WARN")], "hot": {17: HotKey("bot", 0.834), 18: HotKey("x", 0.6)}},
        "Stream 17 falls behind: 83% of its newest records have the key 'bot'.",
    ),
    ("stream-cut", {"cut": {0: 40}}, "Stream 0 lost 40 records to retention before they were accounted for."),
    (
        "retention-near",
        {"rows": [row(0, safe_offset=1000, end=9000)], "first": {0: 900}},
        "Stream 0 is close to retention, which soon deletes records that a replay needs.",
    ),
    ("group-paused", {"is_paused": True}, "The group is paused: its members keep their streams and read"),
    (
        "member-silent",
        {"members": [MEMBER, member(id="m2", answers=False, streams=[4])]},
        "m2 does not answer. It owns 1 stream.",
    ),
    (
        "member-draining",
        {"members": [MEMBER, member(id="m2", state="draining", streams=[4, 5])]},
        "m2 is still draining: 2 streams are left.",
    ),
    ("no-producers", {"producers": []}, "No producer runs, so no fragments are accepted."),
    ("producer-silent", {"producers": [producer(answers=False)]}, "Producer p1 does not answer:"),
    (
        "refusals",
        {"producers": [producer(refused_per_s={"overloaded": 12.34})]},
        "Producer p1 refuses 12.3 a second: overloaded.",
    ),
    (
        "queues-silent",
        {"queues": [MAIL.without_numbers()]},
        "No queue worker answers: control does not know how the queues are.",
    ),
    ("dead-letters", {"queues": [MAIL]}, "Queue mail has 3 dead letters."),
    (
        "queue-old",
        {"queues": [msgspec.structs.replace(MAIL, dead=0, oldest_age_s=7200.0)]},
        "5 items are ready in queue mail, the oldest for 120 min.",
    ),
    (
        "lake-lost",
        {"lake": lake(lost_records=400)},
        "Kafka has deleted 400 offsets of sessions",
    ),
    (
        "lake-behind",
        {"lake": lake(behind_s=2900.0, loss_in_s=700.0)},
        "The lake is 48 min behind; in 11 min Kafka deletes what it lacks.",
    ),
    (
        "audit-unsound",
        {
            "last_audit": msgspec.structs.replace(
                AUDIT, is_sound=False, differences={"missing": 3, "duplicates": 1}
            )
        },
        "The last audit is not sound: 3 sessions are missing, 1 session was delivered twice.",
    ),
    (
        "audit-empty",
        {"last_audit": msgspec.structs.replace(AUDIT, is_sound=None)},
        "The last audit judged nothing, so it proves nothing.",
    ),
    (
        "run-failed",
        {"failed": [run(4, "lake", "failed", message="the disk is full.\nmore")]},
        "The last run of lake failed: the disk is full.",
    ),
]


def test_what_works_is_no_problem() -> None:
    """Lag alone is none, nor a first offset that retention has moved, nor a lake within its time."""
    quiet = row(lag=10_000, safe_offset=80, position=90, end=100)

    assert found_in(rows=[quiet], first={0: 79}, last_audit=AUDIT) == []
    for first, safe_offset in ((0, 0), (4000, 9000), (4000, 4500)):
        assert found_in(rows=[row(safe_offset=safe_offset, end=9000)], first={0: first}) == []


@pytest.mark.parametrize(("kind", "facts", "what"), CASES)
def test_each_problem_is_said_in_a_sentence_with_what_to_do(
    kind: Kind, facts: dict[str, Any], what: str
) -> None:
    """One sentence or two that begin with a capital and end with a full stop, and the same for what to do."""
    first, *others = found_in(**facts)

    assert first.kind == kind
    assert first.what.startswith(what)
    assert {problem.kind for problem in others} <= {kind, "member-draining"}
    for text in (first.what, first.todo):
        assert text.endswith(".")
        assert "!" not in text
        assert "{" not in text


def test_every_kind_has_a_case() -> None:
    """And its rank."""
    assert {kind for kind, _, _ in CASES} == set(get_args(Kind)) == set(RANK)


def test_a_stream_without_an_owner_is_said_once() -> None:
    """Not also as stopped; and without members only they are missing."""
    unowned = row(3, owner=None, status="STOP")

    assert [problem.kind for problem in found_in(rows=[unowned])] == ["unowned"]
    assert [problem.kind for problem in found_in(rows=[unowned], members=[])] == ["no-members"]


def test_streams_of_a_paused_group_stand_still_on_purpose() -> None:
    """Only the pause is said, besides what is wrong anyway."""
    rows = [row(1, status="STOP"), row(2, status="WARN"), row(3, state="retrying", why="x")]

    kinds = [problem.kind for problem in found_in(rows=rows, is_paused=True)]

    assert kinds == ["group-paused", "stream-retrying"]


def test_streams_that_fail_for_one_reason_are_one_problem() -> None:
    """And all of them are one, if there are too many reasons to read."""

    def retrying(reasons: int) -> list[ProblemRow]:
        return found_in(
            rows=[row(n, state="retrying", why=f"reason {n % reasons}", lag=n) for n in range(40)]
        )

    assert [(problem.reason, len(problem.streams)) for problem in retrying(2)] == [
        ("reason 0", 20),
        ("reason 1", 20),
    ]
    (together,) = retrying(40)
    assert together.what == "Streams 39, 38, 37 and 37 more fail again and again."


@pytest.mark.parametrize(
    ("reason", "todo"),
    [
        ("time", "The sender's times cannot be read, or its clock or unit is wrong"),
        ("size", "Let the sender post smaller fragments, or raise BATON_MAX_FRAGMENT_BYTES."),
        ("wrong-key", "The sender has an old key"),
        ("unsupported-type", "The sender has to change its requests"),
    ],
)
def test_what_to_do_about_a_refusal_follows_from_its_reason(reason: str, todo: str) -> None:
    """Rejected fragments are stored and can be looked at; refused requests are not."""
    (problem,) = found_in(producers=[producer(refused_per_s={reason: 0.01})])

    assert problem.what == f"Producer p1 refuses less than 0.1 a second: {reason}."
    assert problem.todo.startswith(todo)


@pytest.mark.parametrize("reason", FRAGMENT_REASONS)
def test_every_reason_of_a_reject_says_what_to_change_and_how_to_look(reason: str) -> None:
    """One sentence on the sender, and the command that lists what it posted."""
    (problem,) = found_in(producers=[producer(refused_per_s={reason: 1.0})])

    fault, _, rest = problem.todo.rpartition(" `")
    assert fault.endswith(".")
    assert rest == f"baton rejected --reason {reason}` shows what it posted."


@pytest.mark.parametrize(
    ("source", "old"),
    [
        ("ZooKeeper", "Owners, members and pins are"),
        ("Kafka", "Positions, lag and the rates of streams are"),
        ("the members", "Open sessions, states of streams and leases are"),
        ("the producers", "The numbers of producers are"),
    ],
)
def test_a_source_that_is_away_says_which_numbers_are_old(source: str, old: str) -> None:
    """And of when they are; the others are as new as ever."""
    complaint, read_ms = f"{source} cannot be read: away", 1_700_000_000_000
    (problem,) = problems_in(Facts(unread={complaint: read_ms}, is_read=False))
    (never,) = problems_in(Facts(unread={complaint: None}, is_read=False))

    assert problem.todo.startswith(f"{old} from the last reading, at 22:13:20 UTC.")
    assert never.todo.startswith(f"{old} not known yet.")


def test_before_the_cluster_was_read_nothing_is_known_to_be_missing() -> None:
    """Neither members nor producers; only what cannot be read is said."""
    found = problems_in(Facts(unread={"ZooKeeper cannot be read: no answer yet": None}, is_read=False))

    assert [problem.kind for problem in found] == ["source-unread"]


def test_before_kafka_was_read_no_log_is_said_to_lack_its_leader() -> None:
    """That Kafka cannot be read is said, and is enough."""
    unread = [row(n, end=None, lag=None, status=None) for n in range(3)]

    assert found_in(rows=unread, has_offsets=False) == []


def test_the_worst_comes_first() -> None:
    """By severity, then by kind, then by the number of streams."""
    found = problems_in(
        Facts(
            rows=[row(1, status="WARN"), row(2, status="STOP"), row(3, state="retrying", why="x")]
            + [row(n, state="retrying", why="y") for n in (4, 5)],
            members=[MEMBER],
            producers=[],
            unread={"Kafka cannot be read: away": None},
        )
    )
    log = ProblemLog()
    log.observe(found, 0)

    lasting = log.observe(found[::-1], 60_000)

    assert [(problem.kind, problem.reason) for problem in lasting] == [
        ("source-unread", None),
        ("stream-retrying", "y"),
        ("stream-retrying", "x"),
        ("stream-stop", None),
        ("stream-behind", None),
        ("no-producers", None),
    ]


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_problem_says_since_when_it_exists(kind: Kind) -> None:
    """Its numbers may change. Once it was gone, it begins anew; what may be over in a moment waits."""
    log, grace_ms = ProblemLog(), GRACE_MS.get(kind, 0)

    def problem(what: str) -> ProblemRow:
        words = "the same" if kind == "source-unread" else what
        return ProblemRow(kind=kind, severity="warn", what=words, todo="", member="m")

    def observed(at_ms: int, found: Sequence[ProblemRow]) -> list[int]:
        return [one.since for one in log.observe(found, at_ms)]

    assert observed(1_000, [problem("1")]) == ([] if grace_ms else [1_000])
    assert observed(1_000 + grace_ms, [problem("2")]) == [1_000]
    assert observed(900_000, [problem("3")]) == [1_000]
    assert observed(901_000, []) == []
    assert observed(902_000, [problem("4")]) == ([] if grace_ms else [902_000])


def test_a_run_that_failed_says_when_it_ended() -> None:
    """Even if control has restarted since."""
    (failed,) = ProblemLog().observe(found_in(failed=[run(4, "lake", "failed")]), 900)

    assert (failed.run, failed.since) == ("r4", 5)


def test_only_the_last_run_of_a_job_counts() -> None:
    """Of this group; cancelled runs say nothing, and neither do those that another control has overtaken."""
    overtaken = msgspec.structs.replace(
        run(9, "audit", "failed"), error=RunError(condition="RunUnderWay", message="")
    )
    runs = [
        overtaken,
        run(8, "lake", "cancelled"),
        run(7, "lake", "failed"),
        run(6, "reports", "succeeded"),
        run(5, "reports", "failed"),
        run(4, "audit", "succeeded"),
        run(3, "maintain", "failed", group="other"),
    ]

    assert [one.id for one in failed_last(runs, "default")] == ["r7"]
    assert [one.id for one in failed_last(runs, "other")] == ["r3"]
    assert last_audit_run(runs, "default") == runs[5]
    assert last_audit_run(runs, "other") is None


@pytest.mark.parametrize(
    ("result", "is_sound", "differences"),
    [
        ({"verdict": "exact", "judged": 5, "missing": 0}, True, {}),
        ({"verdict": "within the promise of at_least_once", "duplicates": 2}, True, {"duplicates": 2}),
        ({"verdict": "differs", "missing": 3, "overdue": 2}, False, {"missing": 3, "overdue": 2}),
        ({"verdict": "nothing judged"}, None, {}),
        ({}, None, {}),
    ],
)
def test_the_last_audit_is_sound_as_far_as_it_judged(
    result: dict[str, Any], is_sound: bool | None, differences: dict[str, int]
) -> None:
    """What the delivery promises is sound; an audit that judged nothing says nothing."""
    audit = last_audit(run(4, "audit", "succeeded"), result)

    assert (audit.run, audit.at, audit.is_sound, audit.differences) == ("r4", 5, is_sound, differences)


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (["bot"] * 50 + ["a", "b"] * 25, HotKey("bot", 0.5)),
        (["bot"] * 49 + ["a", "b", "c"] * 17, None),
        (["bot"] * 99, None),
    ],
    ids=["half", "less than half", "few records"],
)
async def test_a_hot_key_is_looked_for_in_streams_that_fall_behind(
    keys: list[str], found: HotKey | None
) -> None:
    """In the newest records of those with the most lag; what cannot be read is not known."""
    if len(keys) >= LEAST_JUDGED:
        keys = ["old"] * COUNTED + keys * (COUNTED // LEAST_JUDGED)
    values = [(key.encode(), b'{"key":"%s"}' % key.encode()) for key in keys]
    records = InMemoryRecords({stream: list(values) for stream in range(9)})
    behind = [row(stream, status="WARN", lag=stream) for stream in range(MOST_STREAMS + 1)]
    hot = HotKeys(lambda: [row(8, lag=1000), *behind], records)

    await hot.step()
    first = dict(hot.known())
    records.is_denied = True
    await hot.step()

    assert first == ({} if found is None else dict.fromkeys(range(1, MOST_STREAMS + 1), found))
    assert hot.known() == {}


async def test_control_says_what_it_cannot_read_and_what_is_wrong_in_a_group() -> None:
    """From its start; m2 is silent and two streams have no owner for longer than a moment."""
    sources, runner = small_baton(), InMemoryRunner()
    view, clock = sources.view(), [1_000]
    problems = Problems(view, runner, list, now_ms=lambda: clock[0])
    problems.step()
    unread = problems.of_group(DEFAULT_GROUP)

    await view.step()
    problems.step()
    clock[0] += 60_000
    problems.step()
    read = problems.of_group(DEFAULT_GROUP)

    assert [problem.kind for problem in unread.problems] == ["source-unread"] * 4
    assert [(problem.kind, problem.streams, problem.member) for problem in read.problems] == [
        ("unowned", [3], None),
        ("member-silent", [], "m2"),
        ("producer-silent", [], None),
    ]
    assert {problem.since for problem in read.problems} == {1_000}


async def test_what_the_last_audit_says_can_be_an_alarm() -> None:
    """A run of it succeeds whatever it finds, so `/metrics` has the verdict of each audited group."""
    runner, view = InMemoryRunner(), small_baton().view()
    await view.step()
    problems = Problems(view, runner, list)
    registry = registry_for(view, runner, EventFeed(), audits=problems.audits)
    before = registry.get_sample_value("baton_last_audit", {"group": DEFAULT_GROUP, "verdict": "empty"})

    runner.known = {"r4": run(4, "audit", "succeeded")}
    problems.step()

    assert before is None
    assert {
        verdict: registry.get_sample_value("baton_last_audit", {"group": DEFAULT_GROUP, "verdict": verdict})
        for verdict in VERDICTS.values()
    } == {"sound": 0, "unsound": 0, "empty": 1}


async def test_what_the_last_audit_found_is_counted_by_kind() -> None:
    """In `GET /problems`, in words, and in `/metrics`, where a kind that was not found has 0."""
    runner, view = Runs(), small_baton().view()
    await view.step()
    problems = Problems(view, runner, list)
    registry = registry_for(view, runner, EventFeed(), audits=problems.audits)
    runner.add("audit", "succeeded", {"verdict": "differs", "judged": 9, "overdue": 3})

    problems.step()

    assert {
        kind: registry.get_sample_value(
            "baton_last_audit_differences", {"group": DEFAULT_GROUP, "kind": kind}
        )
        for kind in DIFFERENCES
    } == dict.fromkeys(DIFFERENCES, 0) | {"overdue": 3}
    assert "The last audit is not sound: 3 sessions are overdue." in [
        problem.what for problem in problems.of_group(DEFAULT_GROUP).problems
    ]
