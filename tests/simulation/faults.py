"""Small faults, planted in a copy of the code one at a time; the simulation must find each.

A fault is a piece of text that stands exactly once in a file, and what stands there instead. `kinds` are the
faults of the world (methods of `Schedule`) that bring it to light soonest; without any the run draws them.
"""

from __future__ import annotations

from tests.simulation.planting import PlantedFault

CONSUMER = "services/consumer"

FAULTS = (
    PlantedFault(
        name="a handover after an unknown commit",
        file=f"{CONSUMER}/handover/donor.py",
        text=" or core is not base.stream or not core.is_memory:\n",
        instead=" or core is not base.stream:\n",
        kinds=("move", "bad_log"),
    ),
    PlantedFault(
        name="streams that are too large offered again and again",
        file=f"{CONSUMER}/core/ownership/failed_moves.py",
        text="        return self._failed.get(stream, (0, 0))[0] >= TRIES\n",
        instead="        return False\n",
        kinds=("grow_streams", "join"),
    ),
    PlantedFault(
        name="release before commit",
        file=f"{CONSUMER}/member/effects.py",
        text="""        await self.workers.stop(release.stream)
        async with self._slots:
            released = await self._coordinator.release(
                release.stream, release.epoch, worker.seq if worker is not None else None, release.target
            )
""",
        instead="""        async with self._slots:
            released = await self._coordinator.release(
                release.stream, release.epoch, worker.seq if worker is not None else None, release.target
            )
        await self.workers.stop(release.stream)
""",
        kinds=("leave", "join"),
    ),
    PlantedFault(
        name="release before the stop of a handover",
        file=f"{CONSUMER}/handover/donor.py",
        text="        await freeze()\n",
        instead="        core = worker.core\n"
        "        await self._coordinator.release("
        "effect.stream, effect.epoch, core.head.seq if core else None, effect.target)\n"
        "        await freeze()\n",
        kinds=("move", "join", "leave"),
    ),
    PlantedFault(
        name="no digest check of the copy",
        file=f"{CONSUMER}/handover/hints.py",
        text="        if (digest or (yield from digesting(body))) != offer.digest:\n",
        instead="        if False:\n",
        kinds=("move", "garble"),
    ),
    PlantedFault(
        name="no digest check of the delta",
        file=f"{CONSUMER}/handover/hints.py",
        text="        if (digest or (yield from digesting(body))) != completion.digest:\n",
        instead="        if False:\n",
        kinds=("move", "garble"),
        seeds=2000,
        is_rare=True,
    ),
    PlantedFault(
        name="a lease without margin",
        file=f"{CONSUMER}/core/ownership/lease.py",
        text="FACTOR = 0.75\n",
        instead="FACTOR = 1.0\n",
        kinds=("cut_zookeeper", "bad_log"),
        seeds=8000,
        is_rare=True,
    ),
    PlantedFault(
        name="the lease ignored",
        file=f"{CONSUMER}/member/workers.py",
        text="        return lease is not None and lease.is_alive(self._coordinator.now_s())\n",
        instead="        return lease is not None\n",
        kinds=("cut_zookeeper", "freeze"),
    ),
    PlantedFault(
        name="a later ZooKeeper session vouches for an earlier claim",
        file=f"{CONSUMER}/adapters/zookeeper/coordinator.py",
        text="        return self.lease if held == (epoch, self.session_id) else None\n",
        instead="        return self.lease if held is not None and held[0] == epoch else None\n",
        kinds=("cut_zookeeper", "freeze", "kill_zookeeper_session"),
    ),
    PlantedFault(
        name="a claim under the lease of the ZooKeeper session before",
        file=f"{CONSUMER}/member/effects.py",
        text="        async with self._slots:\n            epoch = await acquire(stream)\n",
        instead="        before = self._coordinator.session_id\n"
        "        async with self._slots:\n"
        "            epoch = await acquire(stream)\n"
        "        written = self._coordinator._written\n"
        "        if epoch is not None:\n"
        "            written[stream] = written[stream]._replace(session_id=before)\n",
        kinds=("expire_while_claiming",),
    ),
    PlantedFault(
        name="a claim taken from a member that has a node",
        file=f"{CONSUMER}/adapters/zookeeper/membership.py",
        text="        return node is None or node.ephemeral_of != claim.ephemeral_of\n",
        instead="        return True\n",
        kinds=("join", "crash", "bad_zookeeper"),
    ),
    PlantedFault(
        name="claims kept after a drain past its time",
        file=f"{CONSUMER}/member/member.py",
        text="        await self.coordinator.leave()\n",
        instead="        if self.view is None or not self.view.streams_of(self.coordinator.member):\n"
        "            await self.coordinator.leave()\n",
        kinds=("drain_late", "join"),
    ),
    PlantedFault(
        name="a stream in rewind counted as being opened",
        file=f"{CONSUMER}/member/workers.py",
        text="is_opening=self._is_opening(run.worker),\n",
        instead='is_opening=run.worker.state != "running",\n',
        kinds=("lose_log", "crash", "join"),
    ),
    PlantedFault(
        name="a back-off that ends with an opening",
        file=f"{CONSUMER}/stream/retries.py",
        text="        if core.head.seq > self._failed_seq or is_steady:\n",
        instead="        if True:\n",
        kinds=("fail_after_opening",),
    ),
    PlantedFault(
        name="the head's epoch not checked",
        file=f"{CONSUMER}/stream/opening.py",
        text="        if head.epoch > self._epoch or (self._claimed.is_new and head.epoch == self._epoch):\n",
        instead="        if False:\n",
        kinds=("reset_zookeeper", "join"),
    ),
    PlantedFault(
        name="covered keys forgotten in the copy",
        file=f"{CONSUMER}/core/handover/sent.py",
        text="    covered = list(state.covered.entries)\n",
        instead="    covered = []\n",
        kinds=("move", "crash_and_come_back"),
    ),
    PlantedFault(
        name="covered keys forgotten in the delta",
        file=f"{CONSUMER}/core/handover/sent.py",
        text="    yield from _adding_covered(writer, reversed(covered))\n",
        instead="",
        kinds=("move", "bad_peers"),
        seeds=1500,
    ),
    PlantedFault(
        name="remembered ids forgotten in the bundle",
        file=f"{CONSUMER}/core/handover/received.py",
        text="        put_covered(copy.covered, entry)\n",
        instead='        put_covered(copy.covered, __import__("msgspec").structs.replace(entry, ids=[]))\n',
        kinds=("move",),
    ),
    PlantedFault(
        name="an open session's ids forgotten in the bundle",
        file=f"{CONSUMER}/core/handover/bundle_format.py",
        text="        list(ids)[ids_from:],\n",
        instead="        [],\n",
        kinds=("move",),
    ),
    PlantedFault(
        name="the delta's closed sessions forgotten",
        file=f"{CONSUMER}/core/handover/sent.py",
        text="    return writer.finish(closed, _tail(stream))\n",
        instead="    return writer.finish([], _tail(stream))\n",
        kinds=("move",),
    ),
    PlantedFault(
        name="finished sessions forgotten in the delta",
        file=f"{CONSUMER}/core/handover/sent.py",
        text="            for closed in stream.pending\n",
        instead="            for closed in ()\n",
        kinds=("move",),
    ),
    PlantedFault(
        name="what was covered since the last commit forgotten in the delta",
        file=f"{CONSUMER}/core/handover/sent.py",
        text="        list(state.covered.changed),\n",
        instead="        [],\n",
        kinds=("move", "crash_and_come_back", "burst"),
    ),
    PlantedFault(
        name="the silence so far forgotten in the bundle",
        file=f"{CONSUMER}/core/handover/received.py",
        text="        w=tail.w,\n        a=tail.a,\n",
        instead="        w=head.w,\n        a=head.a,\n",
        kinds=("move",),
        seeds=2000,
        is_rare=True,
    ),
    PlantedFault(
        name="how much is parked forgotten in a hint",
        file=f"{CONSUMER}/core/handover/received.py",
        text="session.w, session.last_a, session.parked = sent.w, sent.last_a, sent.parked",
        instead="session.w, session.last_a = sent.w, sent.last_a",
        kinds=("move", "crash_and_come_back"),
        seeds=8000,
        is_rare=True,
    ),
    PlantedFault(
        name="the head read before fencing",
        file=f"{CONSUMER}/stream/opening.py",
        text="            await self.sink.open()\n"
        "            self._steps += 1\n"
        "            head = await self.sink.head()\n",
        instead="            head = await self.sink.head()\n            await self.sink.open()\n",
    ),
    PlantedFault(
        name="memory kept after an unknown commit",
        file=f"{CONSUMER}/core/commits/stream.py",
        text="        return not (self._in_commit or self.is_replaying)\n",
        instead="        self._in_commit = False\n        return not self.is_replaying\n",
        kinds=("bad_log",),
    ),
    PlantedFault(
        name="a hint judged by ZooKeeper alone",
        file=f"{CONSUMER}/core/handover/rules.py",
        text="    return hint.is_memory and hint.head == stored\n",
        instead="    return hint.is_memory\n",
        kinds=("move", "crash_and_come_back", "late_zookeeper"),
    ),
    PlantedFault(
        name="a hint judged by the head's seq alone",
        file=f"{CONSUMER}/core/handover/rules.py",
        text="    return hint.is_memory and hint.head == stored\n",
        instead="    return hint.is_memory and hint.head.seq <= stored.seq\n",
        kinds=("move", "crash_and_come_back", "late_zookeeper"),
    ),
    PlantedFault(
        name="going on after an unknown release without writing the stream's node",
        file=f"{CONSUMER}/adapters/zookeeper/coordinator.py",
        text="""            Set(self._names.stream(self.group, stream), _encode(mine), node.version),
            same if _encode(other) == claim.data else Set(claim_path, _encode(other), claim.version),
        ]
        if not await self._transact(operations, session):
            self._mirror.doubt(stream)
            raise ZooKeeperUnavailable(f"the claim of stream {stream} could not be confirmed")
        self._note(stream, new, node.version + 1, session)
""",
        instead="""            Check(self._names.stream(self.group, stream), node.version),
            same if _encode(other) == claim.data else Set(claim_path, _encode(other), claim.version),
        ]
        if not await self._transact(operations, session):
            self._mirror.doubt(stream)
            raise ZooKeeperUnavailable(f"the claim of stream {stream} could not be confirmed")
        self._note(stream, new, node.version, session)
""",
        kinds=("late_zookeeper", "move"),
        seeds=1500,
    ),
    PlantedFault(
        name="a release that checks no version",
        file=f"{CONSUMER}/adapters/zookeeper/coordinator.py",
        text="Set(self._names.stream(self.group, stream), _encode(final), written.version),",
        instead="Set(self._names.stream(self.group, stream), _encode(final)),",
        kinds=("late_zookeeper", "move"),
    ),
    PlantedFault(
        name="another log taken for the one that was read",
        file=f"{CONSUMER}/core/commits/last_record.py",
        text="        elif self.appended == found.timestamp:\n",
        instead="        elif True:\n",
        kinds=("regrow_log",),
    ),
    PlantedFault(
        name="the record that is committed in parts forgotten",
        file=f"{CONSUMER}/core/commits/stream.py",
        text="            closing=self.last_record.closing_behind(state.position),\n",
        instead="",
        kinds=("regrow_in_parts",),
    ),
    PlantedFault(
        name="the log recognized by no more than its length",
        file=f"{CONSUMER}/core/commits/last_record.py",
        text="        return min(position, self.offset) if self.offset >= 0 else position\n",
        instead="        return position\n",
        kinds=("regrow_log", "crash"),
    ),
    PlantedFault(
        name="memory kept of records that the log has lost",
        file=f"{CONSUMER}/stream/worker.py",
        text="                self.core = None  # no memory: what it read beyond the stored head is gone\n",
        instead="                pass\n",
        kinds=("regrow_log",),
    ),
    PlantedFault(
        name="the number of the log forgotten in the head",
        file=f"{CONSUMER}/core/commits/stream.py",
        text="            log=self.head.log,\n",
        instead="",
        kinds=("regrow_log",),
    ),
    PlantedFault(
        name="the safe offset of open sessions forgotten",
        file=f"{CONSUMER}/core/commits/stream.py",
        text="        safe_offset = state.position if first is None else first.pin\n",
        instead="        safe_offset = state.position\n",
        kinds=("crash",),
    ),
    PlantedFault(
        name="covered keys forgotten in the checkpoint",
        file=f"{CONSUMER}/core/sessions/covered.py",
        text="        self.changed, self._new_ids, self.unparked = {}, {}, set()\n",
        instead="        self.changed, self._new_ids, self.unparked, changes = {}, {}, set(), {}\n",
        kinds=("crash",),
    ),
    PlantedFault(
        name="the position passes a marker before its last part",
        file=f"{CONSUMER}/core/sessions/assembly.py",
        text="            self.position = unfinished.offset\n",
        instead="            self.position = unfinished.offset + (unfinished.key is None)\n",
        kinds=("burst", "crash_and_come_back"),
    ),
    PlantedFault(
        name="the head passes a marker before its last part",
        file=f"{CONSUMER}/core/commits/stream.py",
        text="            position=state.position,\n            safe_offset=safe_offset,\n",
        instead="            position=state.position + (state._marker is not None),\n"
        "            safe_offset=safe_offset,\n",
        kinds=("burst", "crash_and_come_back"),
    ),
    PlantedFault(
        name="a part delivered twice",
        file=f"{CONSUMER}/core/commits/stream.py",
        text="        changed = state.covered.take_changes(safe_offset, a)\n",
        instead="        changed = state.covered.take_changes(safe_offset, a)\n"
        "        changed = {} if state._marker is not None else changed\n",
        kinds=("burst", "crash_and_come_back"),
    ),
    PlantedFault(
        name="a part's records forgotten",
        file=f"{CONSUMER}/stream/worker.py",
        text="        self._left = turn.left\n",
        instead="        self._left = ()\n",
        kinds=("burst",),
    ),
)
