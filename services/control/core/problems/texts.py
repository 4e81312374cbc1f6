"""The words of `problems.py`: what is wrong, and what to do about it.

Present tense, short, no blame. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

NAMED: Final = 3
"""Streams that a sentence names; the others are only counted."""

SHOWN_KEY: Final = 80
"""Letters of a key that a sentence quotes."""

Text = tuple[str, str]
"""What is wrong, and what to do."""

PAUSED: Final[Text] = (
    "The group is paused: its members keep their streams and read nothing.",
    "`baton resume` lets it go on.",
)
_START_MEMBER: Final = "Start a consumer: `python -m services.consumer`."
NO_MEMBERS: Final[Text] = ("No member runs, so no stream is read.", _START_MEMBER)
ALL_DRAINING: Final[Text] = (
    "Every member is draining, so none takes the streams over.",
    _START_MEMBER,
)
NO_PRODUCERS: Final[Text] = (
    "No producer runs, so no fragments are accepted.",
    "Start one: `python -m services.producer`.",
)

SILENT_QUEUES: Final[Text] = (
    "No queue worker answers: control does not know how the queues are.",
    "Look at the workers' processes, and at `BATON_QUEUE_URL` and `BATON_QUEUE_KEY_FILE` of control.",
)

NOTHING_JUDGED: Final[Text] = (
    "The last audit judged nothing, so it proves nothing.",
    "The log is empty, retention has removed what an audit needs, or its part is too small.",
)

_STREAMS: Final[Mapping[str, tuple[str, str, str]]] = {
    "log-unread": (
        "cannot be read or written: no leader of its log answers, so its lag is not known",
        "cannot be read or written: no leaders of their logs answer, so their lag is not known",
        "Check the brokers: `baton doctor` names those that do not answer. "
        "The streams go on by themselves once their logs have leaders.",
    ),
    "stream-rewind": (
        "stands still: its log or its head is not the one that it has read",
        "stand still: their logs or their heads are not the ones that they have read",
        "`baton events --kind rewind` says why; docs/operations.md, “The log was lost”, says what to choose.",
    ),
    "stream-retrying": (
        "fails again and again",
        "fail again and again",
        "The log of {owner} has the whole error. Reading continues by itself once the reason is gone.",
    ),
    "stream-stop": (
        "has stopped: no commit, and {count} wait",
        "have stopped: no commit, and {count} wait",
        "Look at the log of {owner}; `baton members` says whether it answers.",
    ),
    "stream-stall": (
        "does not advance: it commits, and {count} wait",
        "do not advance: they commit, and {count} wait",
        "Look at the log of {owner}, and at the newest records of the log.",
    ),
    "stream-behind": (
        "falls behind: its lag grew at each of the last three commits",
        "fall behind: their lag grew at each of the last three commits",
        "Add a consumer, or `baton move {stream} --to MEMBER` to one with less work.",
    ),
    "stream-cut": (
        "lost {count} to retention before they were accounted for",
        "lost {count} to retention before they were accounted for",
        "`baton kafka settings fragments.{stream:04d} retention.ms=…` keeps them for longer; "
        "`baton run audit` says what is missing.",
    ),
    "retention-near": (
        "is close to retention, which soon deletes records that a replay needs",
        "are close to retention, which soon deletes records that a replay needs",
        "`baton kafka settings fragments.{stream:04d} retention.ms=…` keeps them for longer.",
    ),
}

_REFUSALS: Final[Mapping[str, str]] = {
    "missing-key": "Give the sender a write key (BATON_WRITE_KEYS).",
    "wrong-key": "The sender has an old key, or one for something else: see BATON_WRITE_KEYS_FILE.",
    "wrong-scope": "The sender has an old key, or one for something else: see BATON_WRITE_KEYS_FILE.",
    "origin-refused": "List the page's origin in BATON_ALLOWED_ORIGINS if it may write.",
    "rate-limited": "The sender uses up the rate of its key; raise it where that is wanted.",
    "overloaded": "Start another producer, or raise BATON_MAX_INFLIGHT_BYTES.",
    "too-many-connections": "Start another producer, or raise BATON_MAX_CONNECTIONS.",
    "request-too-large": "Let the sender send less at once, or raise BATON_MAX_REQUEST_BYTES.",
    "kafka-unavailable": "Look at Kafka: `baton doctor`.",
    "zookeeper-unavailable": "Look at ZooKeeper: `baton doctor`.",
    "keys-unread": "Mend BATON_WRITE_KEYS_FILE; the producer's log says what is wrong with it.",
    "leaving": "The producer is stopping; clients send again to another one.",
    "unstored": "Look at Kafka: `baton doctor`. Clients send these fragments again.",
}
_REJECTED: Final[Mapping[str, str]] = {
    "malformed": "The sender posts what is not JSON.",
    "invalid": "The sender leaves a field out, or gives it another type.",
    "encoding": "The sender must post UTF-8.",
    "nesting": "The sender's JSON is nested too deeply.",
    "key": "The sender's keys are empty or too long.",
    "id": "The sender's ids are empty or too long; it may leave them out.",
    "time": "The sender's times cannot be read, or its clock or unit is wrong: RFC 3339, or ms since 1970.",
    "size": "Let the sender post smaller fragments, or raise BATON_MAX_FRAGMENT_BYTES.",
}
"""What is wrong with rejected fragments, by reason."""
_READ_FROM: Final[Mapping[str, str]] = {
    "ZooKeeper": "Owners, members and pins",
    "Kafka": "Positions, lag and the rates of streams",
    "the members": "Open sessions, states of streams and leases",
    "the producers": "The numbers of producers",
}
"""What control knows from each source, by the name in its complaint."""
_OTHER_REFUSAL: Final = "The sender has to change its requests: docs/protocol.md says what each answer means."
_KINDS_OF_DIFFERENCE: Final[Mapping[str, tuple[str, str]]] = {
    "missing": ("session is missing", "sessions are missing"),
    "overdue": ("session is overdue", "sessions are overdue"),
    "duplicates": ("session was delivered twice", "sessions were delivered twice"),
    "extra": ("session should not exist", "sessions should not exist"),
    "different": ("session differs", "sessions differ"),
    "lake_missing": ("session is missing in the lake", "sessions are missing in the lake"),
    "lake_duplicated": ("session is in the lake twice", "sessions are in the lake twice"),
    "lake_days": ("day of the lake is not as written", "days of the lake are not as written"),
    "reports_different": ("sum of a report is wrong", "sums of reports are wrong"),
}


def count(number: int, one: str, many: str) -> str:
    """The number with its words.

    >>> count(1, "stream waits", "streams wait"), count(1842, "stream waits", "streams wait")
    ('1 stream waits', '1,842 streams wait')
    """
    return f"{number:,} {one if number == 1 else many}"


def named(streams: Sequence[int]) -> str:
    """The streams as the subject of a sentence.

    >>> named([7]), named([7, 3]), named(range(43))
    ('Stream 7', 'Streams 7 and 3', 'Streams 0, 1, 2 and 40 more')
    """
    if len(streams) == 1:
        return f"Stream {streams[0]}"
    more = [f"{len(streams) - NAMED:,} more"] if len(streams) > NAMED else []
    words = [*map(str, streams[:NAMED]), *more]
    return f"Streams {', '.join(words[:-1])} and {words[-1]}"


def time_text(seconds: float) -> str:
    """A length of time for people.

    >>> time_text(59.9), time_text(2160), time_text(20_000), time_text(-4)
    ('59 s', '36 min', '5.6 h', '0 s')
    """
    if seconds < 60:
        return f"{int(max(0, seconds))} s"
    return f"{int(seconds / 60)} min" if seconds < 3 * 3600 else f"{seconds / 3600:.1f} h"


def time_of_day(at_ms: int) -> str:
    """The time of a moment (ms UTC), without its day.

    >>> time_of_day(1_700_000_000_000)
    '22:13:20 UTC'
    """
    minutes, second = divmod(at_ms // 1000, 60)
    return f"{minutes // 60 % 24:02}:{minutes % 60:02}:{second:02} UTC"


def source(complaint: str, read_ms: int | None) -> Text:
    """A source that cannot be read: which numbers are old now, and of when (ms UTC). None: it never was.

    >>> source("Kafka cannot be read: the broker is away", 1_700_000_000_000)[1].partition(".")[0]
    'Positions, lag and the rates of streams are from the last reading, at 22:13:20 UTC'
    """
    old = next((numbers for name, numbers in _READ_FROM.items() if complaint.startswith(name)), "The numbers")
    when = "not known yet" if read_ms is None else f"from the last reading, at {time_of_day(read_ms)}"
    return f"{complaint}.", f"{old} are {when}. Control keeps trying; `baton doctor` finds out more."


def unowned(streams: int) -> Text:
    """Streams that nobody has claimed, although there are members."""
    return (
        f"{count(streams, 'stream waits', 'streams wait')} for an owner.",
        "Members claim them within seconds. If they do not, `baton members` and the members' logs say why.",
    )


def of_streams(kind: str, streams: Sequence[int], records: int, owner: str | None, why: str) -> Text:
    """What is wrong with the streams, the worst first, and what to do; `why` ends the sentence."""
    one, many, todo = _STREAMS[kind]
    words = (one if len(streams) == 1 else many).format(count=count(records, "record", "records"))
    reason = f": {why.rstrip('.')}" if why else ""
    action = todo.format(owner=owner or "its owner", stream=streams[0])
    return f"{named(streams)} {words}{reason}.", action


def hot_key(stream: int, key: str, share: float) -> Text:
    """A stream that falls behind because of one key, which has `share` of its newest records.

    >>> hot_key(5, "bot", 0.834)[0]
    "Stream 5 falls behind: 83% of its newest records have the key 'bot'."
    """
    shown = repr(key if len(key) <= SHOWN_KEY else f"{key[:SHOWN_KEY]}…")
    return (
        f"Stream {stream} falls behind: {share:.0%} of its newest records have the key {shown}.",
        "More consumers do not help, because a key has one stream. Find out who sends it: a robot, or a "
        "sender that gives all its fragments the same key.",
    )


def draining_member(member: str, streams: int) -> Text:
    """A member that drains for long."""
    left = count(streams, "stream is", "streams are")
    return f"{member} is still draining: {left} left.", "`baton operations` says what it waits for."


def silent_member(member: str, streams: int) -> Text:
    """A member that is registered and does not answer."""
    owned = f" It owns {count(streams, 'stream', 'streams')}." if streams else ""
    return (
        f"{member} does not answer.{owned}",
        "Look at its process and its log. If it hangs, end it: others take its streams over.",
    )


def silent_producer(producer: str) -> Text:
    """A producer that is registered and does not answer."""
    return (
        f"Producer {producer} does not answer: what it refuses is unknown.",
        "Look at its process. With a private port, control must reach that one (BATON_PRIVATE_HOST).",
    )


def refusals(producer: str, reason: str, per_s: float) -> Text:
    """A producer that refuses fragments or requests for this reason."""
    rate = f"{per_s:,.1f}" if per_s >= 0.1 else "less than 0.1"
    what = f"Producer {producer} refuses {rate} a second: {reason}."
    if (fault := _REJECTED.get(reason)) is not None:
        return what, f"{fault} `baton rejected --reason {reason}` shows what it posted."
    return what, _REFUSALS.get(reason, _OTHER_REFUSAL)


def dead_letters(queue: str, dead: int) -> Text:
    """Items of a queue that nobody could work on."""
    return (
        f"Queue {queue} has {count(dead, 'dead letter', 'dead letters')}.",
        f"Its page shows why. Once the reason is gone, `baton queue redrive {queue}` puts them back.",
    )


def old_items(queue: str, ready: int, age_s: float) -> Text:
    """A queue whose items wait for long."""
    waiting = count(ready, "item is", "items are")
    return (
        f"{waiting} ready in queue {queue}, the oldest for {time_text(age_s)}.",
        f"Start more clients of {queue}, or look at what those that run wait for.",
    )


def lake_lost(records: int) -> Text:
    """Sessions that Kafka deleted before the lake read them."""
    return (
        f"Kafka has deleted {count(records, 'offset', 'offsets')} of sessions that the lake lacks.",
        "Run `lake` more often (BATON_SCHEDULES), or let Kafka keep sessions for longer: "
        "`baton kafka settings sessions retention.ms=…`.",
    )


def lake_behind(behind_s: float, loss_in_s: float) -> Text:
    """Sessions that the lake lacks and Kafka soon deletes."""
    when = f"in {time_text(loss_in_s)}" if loss_in_s > 0 else "at any moment"
    return (
        f"The lake is {time_text(behind_s)} behind; {when} Kafka deletes what it lacks.",
        "`baton run lake`; BATON_SCHEDULES runs it by itself.",
    )


def unsound(run: str, differences: Mapping[str, int]) -> Text:
    """An audit that found differences."""
    named_ones = [
        count(n, *_KINDS_OF_DIFFERENCE.get(name, (f"({name})", f"({name})")))
        for name, n in differences.items()
    ]
    what = f"The last audit is not sound: {', '.join(named_ones) or 'it found differences'}."
    return what, f"`baton runs show {run}` lists examples."


def failed_run(job: str, run: str, message: str) -> Text:
    """A job whose last run failed."""
    why = f": {message.splitlines()[0].rstrip('.')}" if message.strip() else ""
    return f"The last run of {job} failed{why}.", f"`baton runs log {run}` shows the rest."
