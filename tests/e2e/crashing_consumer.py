"""`python -m services.consumer`, and with BATON_TEST_CRASH a consumer that signals itself during a commit.

BATON_TEST_CRASH=`where:n:signal` plants SIGKILL or SIGSTOP in the n-th commit of the process:
`before_offsets` (sessions sent, offsets not), `before_commit` (all sent, the transaction still open),
`after_commit` (ended, its answer unused) or `after_sessions` (weaker deliveries: sessions sent outside a
transaction).

With BATON_TEST_SMALL the limits that only large groups reach are small: commits are split at 64 KB of
sessions, and claims queue one behind the other.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from services.consumer.__main__ import serve
from services.consumer.adapters.kafka import log as kafka_log
from services.consumer.adapters.kafka import sink as kafka_sink
from services.consumer.core.commits import stream
from services.consumer.member import effects
from services.consumer.settings import ConsumerSettings
from shared.kafka.send.transactional import GroupOffset, TransactionalWriter
from shared.service.runtime import main

CRASH = "BATON_TEST_CRASH"
SMALL = "BATON_TEST_SMALL"
SMALL_COMMIT_BYTES = 65_536


class CrashingWriter(TransactionalWriter):
    """Signals its process at the planted place of a commit."""

    where = ""
    countdown = 0
    signal = signal.SIGKILL

    @classmethod
    def passes(cls, where: str) -> None:
        """Counts a commit that reaches this place."""
        if where == cls.where:
            cls.countdown -= 1
            if cls.countdown == 0:
                os.kill(os.getpid(), cls.signal)

    async def commit_offset(self, offset: GroupOffset) -> None:
        """Runs after all records of the transaction are written."""
        self.passes("before_offsets")
        await super().commit_offset(offset)

    async def end(self, *, is_commit: bool) -> None:
        """Ends the transaction."""
        self.passes("before_commit")
        await super().end(is_commit=is_commit)
        self.passes("after_commit")


class CrashingSink(kafka_sink.KafkaSessionSink):
    """Dies right after the sessions of an `at_least_once` or `at_most_once` commit were acknowledged."""

    async def _deliver_apart(self, sessions: Any) -> None:
        await super()._deliver_apart(sessions)
        if sessions:
            CrashingWriter.passes("after_sessions")


if __name__ == "__main__":
    if CRASH in os.environ:
        CrashingWriter.where, number, name = os.environ.pop(CRASH).split(":")
        CrashingWriter.countdown, CrashingWriter.signal = int(number), signal.Signals[name]
        planted = (
            (kafka_sink, "TransactionalWriter", CrashingWriter),
            (kafka_log, "KafkaSessionSink", CrashingSink),
        )
        for module, name, crashing in planted:
            setattr(module, name, crashing)
    if SMALL in os.environ:
        vars(stream)["MAX_PENDING_BYTES"] = SMALL_COMMIT_BYTES
        vars(effects)["CALLS_AT_ONCE"] = 1
    sys.exit(main("consumer", ConsumerSettings, serve))
