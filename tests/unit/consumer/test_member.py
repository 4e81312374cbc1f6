"""Members over one in-memory ZooKeeper and broker, on virtual time: take-over, release, expiry, resets."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from services.consumer.core.lease import FACTOR
from services.consumer.member import STALLED_S, WATCH_EVERY_S
from services.consumer.metrics import ConsumerMetrics
from services.consumer.status import Rates, member_status
from shared.cluster import MemberNode, StreamNode
from shared.errors import InvalidInput
from shared.group import GroupSettings
from shared.names import Names
from tests.fakes.coordinator import ZnodeStore
from tests.fakes.virtual_time import in_virtual_time, until
from tests.unit.consumer.group_world import TIMEOUT_S, GroupWorld

LONG = GroupSettings(repeat_ms=0)


def node_of(world: GroupWorld, stream: int) -> StreamNode:
    """What stands at the stream's node."""
    return msgspec.json.decode(world.store.znodes[Names().stream("default", stream)].data, type=StreamNode)


def test_thirteen_streams_over_five_members() -> None:
    """3, 3, 3, 2, 2, whatever the order in which they came; every stream is read by one."""

    async def test() -> None:
        world = GroupWorld(LONG, 13)
        for name in "abcde":
            await world.join(name)
            await asyncio.sleep(0.5)

        await world.settled()

        assert sorted(len(one.running) for one in world.members.values()) == [2, 2, 3, 3, 3]
        await world.end()

    in_virtual_time(test)


def test_an_orderly_stop_hands_its_streams_over_at_once() -> None:
    """It commits, names a target and is gone; nobody waits for a time-out, nothing is replayed."""

    async def test() -> None:
        world = GroupWorld(LONG, 4)
        await world.join("a")
        await world.join("b")
        await world.settled()
        for stream in range(4):
            world.say("k", stream=stream)
            world.say("done", stream=stream, end=True)
        await asyncio.sleep(0.2)

        took_s = await world.stop("a")
        await world.settled()
        moved_s = asyncio.get_running_loop().time()
        world.close_all(4)
        await world.committed()

        assert took_s < 1
        assert moved_s < 10
        assert world.rows() == world.expected()
        assert Names().member("default", "a") not in world.store.znodes
        await world.end()

    in_virtual_time(test)


def test_the_last_member_leaves_no_claim() -> None:
    """Everything is committed and released although nobody is there to take it."""

    async def test() -> None:
        world = GroupWorld(LONG, 3)
        await world.join("a")
        await world.settled()
        world.say("k", end=True)
        await asyncio.sleep(0.2)

        await world.stop("a")

        assert world.store.children(Names().claims("default")) == []
        assert world.keys() == ["k"]
        assert (node_of(world, 0).seq, node_of(world, 0).target) == (1, None)

    in_virtual_time(test)


def test_a_dead_owners_streams_are_taken_over_after_its_time_out() -> None:
    """They go on from the safe offset: open sessions lose nothing, closed ones are not delivered again."""

    async def test() -> None:
        world = GroupWorld(LONG, 4)
        await world.join("a")
        await world.join("b")
        await world.settled()
        for stream in range(4):
            world.say("open", stream=stream)
            world.say("done", stream=stream, end=True)
        await world.committed()
        session = await world.kill("a")
        for stream in range(4):
            world.say("open", stream=stream, end=True)
        await asyncio.sleep(TIMEOUT_S)
        assert len(world.members["b"].running) == 2

        world.store.expire(session)
        await world.settled()
        await world.committed()

        assert len(world.members["b"].running) == 4
        assert world.rows() == world.expected()
        await world.end()

    in_virtual_time(test)


def test_a_member_that_comes_back_takes_its_own_streams_at_once() -> None:
    """The claims of its former ZooKeeper session are replaced, not waited for, nor adopted."""

    async def test() -> None:
        world = GroupWorld(LONG, 2)
        await world.join("a")
        await world.settled()
        world.say("k")
        await world.committed()
        await world.kill("a")

        begun_s = asyncio.get_running_loop().time()
        again = await world.join("a")
        await world.settled()

        assert asyncio.get_running_loop().time() - begun_s < 1
        assert [worker.epoch for worker in again.member.workers] == [2, 2]
        await world.end()

    in_virtual_time(test)


def test_an_expired_zookeeper_session_is_survived() -> None:
    """It drops what it ran without a word more, joins again, claims again, and nothing is lost or doubled."""

    async def test() -> None:
        world = GroupWorld(LONG, 2)
        one = await world.join("a")
        await world.settled()
        world.say("k", end=True)
        world.say("open")
        await until(lambda: one.worker(0).position == 2)

        world.store.expire(one.session_id)
        await until(lambda: [w.epoch for w in one.member.workers] == [2, 2])
        world.close_all(2)
        await world.committed()

        assert world.rows() == world.expected()
        assert Names().member("default", "a") in world.store.znodes
        await world.end()

    in_virtual_time(test)


def test_past_its_lease_a_member_pauses_and_goes_on_in_the_same_epoch() -> None:
    """Disconnected for longer than the lease but not expired: no commit meanwhile, no new claim after."""

    async def test() -> None:
        world = GroupWorld(LONG, 1)
        one = await world.join("a")
        await world.settled()
        one.coordinator.zookeeper.disconnect()
        await asyncio.sleep(TIMEOUT_S * FACTOR + 0.2)
        commits = world.broker.commits
        world.say("k", end=True)
        await asyncio.sleep(60)
        status = member_status([one.member], "a", "default", one.member.node, Rates(lambda: 0.0))
        complaints, paused = one.member.complaints(), world.broker.commits

        one.coordinator.zookeeper.reconnect()
        await world.committed()

        assert paused == commits
        assert status["lease_ms"] == 0
        assert complaints == ["the lease is over: ZooKeeper does not answer"]
        assert world.keys() == ["k"]
        assert one.worker(0).epoch == 1
        await world.end()

    in_virtual_time(test)


def test_a_zombie_changes_nothing() -> None:
    """Cut off while another took over, within its lease it still tries to commit: that is fenced."""

    async def test() -> None:
        world = GroupWorld(LONG, 1)
        zombie = await world.join("a")
        await world.settled()
        world.say("k")
        await world.committed()
        zombie.coordinator.zookeeper.disconnect()
        world.store.expire(zombie.session_id)
        other = await world.join("b")
        await until(lambda: other.running == [0])
        world.say("k", end=True)
        await world.committed()

        await asyncio.sleep(60)
        zombie.coordinator.zookeeper.reconnect()
        await asyncio.sleep(10)

        head = world.broker.stored(0).head
        assert head is not None
        assert (world.keys(), head.epoch) == (["k"], other.worker(0).epoch)
        assert zombie.running == []
        await world.end()

    in_virtual_time(test)


def test_lost_answers_from_zookeeper_leave_no_stream_unread() -> None:
    """A claim that was won all the same is taken up; a release that took effect is not repeated."""

    async def test() -> None:
        world = GroupWorld(LONG, 6)
        one, two = await world.join("a"), await world.join("b")
        for n in range(40):
            one.coordinator.zookeeper.lose_answers += n % 2
            two.coordinator.zookeeper.lose_requests += n % 3 == 0
            await asyncio.sleep(0.1)
            world.say("k", stream=n % 6, end=n % 4 == 0)
        one.coordinator.zookeeper.lose_answers = two.coordinator.zookeeper.lose_requests = 0

        await world.settled()
        world.close_all(6)
        await world.committed()

        assert world.rows() == world.expected()
        await world.end()

    in_virtual_time(test)


def test_zookeeper_was_reset_and_kafka_kept() -> None:
    """Claims of a lower epoch than the heads: the epoch is raised above them, and the streams go on."""

    async def test() -> None:
        world = GroupWorld(LONG, 2)
        for name in "ababab":  # every take-over raises the epoch
            await world.join(name)
            await world.settled()
            world.say("k", end=True)
            world.say("k", stream=1, end=True)
            await world.committed()
            await world.stop(name)
        before = world.broker.stored(0).head
        assert before is not None
        assert before.epoch == 6
        world.store = ZnodeStore(clock=asyncio.get_running_loop().time)

        one = await world.join("c")
        await world.settled()
        world.say("k", end=True)
        world.say("k", stream=1, end=True)
        await world.committed()

        assert [worker.epoch for worker in one.member.workers] == [7, 7]
        assert (node_of(world, 0).epoch, node_of(world, 1).epoch) == (7, 7)
        assert world.rows() == world.expected()
        await world.end()

    in_virtual_time(test)


def test_zookeeper_is_reset_under_running_members() -> None:
    """All znodes and ZooKeeper sessions are gone: a member makes the group again, and all go on."""

    async def test() -> None:
        world = GroupWorld(LONG, 4)
        for name in "ab":
            await world.join(name)
        await world.settled()
        world.say("before", end=True)
        world.say("open")
        await world.committed()

        for session in list(world.store.sessions):
            world.store.expire(session)
        world.store.znodes = {"/": world.store.znodes["/"]}
        await world.settled()
        world.say("open", end=True)
        await world.committed()

        assert sorted(len(one.running) for one in world.members.values()) == [2, 2]
        assert world.rows() == world.expected()
        await world.end()

    in_virtual_time(test)


def test_the_watchdog_replaces_a_reader_that_hangs() -> None:
    """Records to read, a running stream and no progress for a while: a new reader goes on in place."""

    async def test() -> None:
        world = GroupWorld(LONG, 1)
        one = await world.join("a")
        await world.settled()
        one.log.hanging.update(one.log.readers)
        await asyncio.sleep(30)
        begun_s = asyncio.get_running_loop().time()
        world.say("k", end=True)

        await world.committed()

        took_s = asyncio.get_running_loop().time() - begun_s
        assert STALLED_S < took_s < STALLED_S + 4 * WATCH_EVERY_S
        assert world.keys() == ["k"]
        assert one.worker(0).epoch == 1
        await world.end()

    in_virtual_time(test)


def test_a_quiet_stream_keeps_its_reader() -> None:
    """Without records to read there is no progress to be made."""

    async def test() -> None:
        world = GroupWorld(LONG, 2)
        one = await world.join("a")
        await world.settled()

        await asyncio.sleep(600)

        assert len(one.log.readers) == 2
        await world.end()

    in_virtual_time(test)


def test_other_settings_than_the_groups_are_refused() -> None:
    """A member with other values does not take part; the sentence names them."""

    async def test() -> None:
        world = GroupWorld(LONG, 1)
        await world.join("a")
        world.settings = msgspec.structs.replace(LONG, gap_ms=5)

        with pytest.raises(InvalidInput, match="gap_ms: 5 / 1800000"):
            await world.join("b")

        await world.end()

    in_virtual_time(test)


def test_a_mute_broker_does_not_cost_the_claims() -> None:
    """Kafka is gone for minutes: the members keep their streams, and an orderly stop still ends in time."""

    async def test() -> None:
        world = GroupWorld(LONG, 3)
        one = await world.join("a")
        await world.settled()
        world.broker.mute = True
        for stream in range(3):
            world.say("k", stream=stream, end=True)
        await asyncio.sleep(300)
        epochs = [worker.epoch for worker in one.member.workers]

        took_s = await world.stop("a")
        world.broker.mute = False
        await world.join("b")
        await world.settled()
        await world.committed()

        assert epochs == [1, 1, 1]
        assert took_s < 21
        assert world.rows() == world.expected()
        await world.end()

    in_virtual_time(test)


@pytest.mark.parametrize("seed", range(15))
def test_members_come_die_and_expire_and_every_session_is_delivered_once(seed: int) -> None:
    """Whatever happens in whatever order: the eager fold's sessions, each once; the group comes to rest."""

    async def test() -> None:
        rng = random.Random(seed)
        world = GroupWorld(LONG, 5)
        await world.join("m0")
        for n in range(60):
            for _ in range(rng.randrange(6)):
                world.say(f"k{rng.randrange(9)}", stream=rng.randrange(5), end=rng.random() < 0.3, id=str(n))
            await asyncio.sleep(rng.choice([0, 0.05, 1]))
            name, kind = f"m{rng.randrange(4)}", rng.random()
            if name not in world.members:
                await world.join(name)
            elif kind < 0.1:
                world.store.expire(await world.kill(name))
            elif kind < 0.2:
                world.store.expire(world.members[name].session_id)
            elif kind < 0.3:
                session = world.members[name].session_id
                await world.stop(name)
                world.store.expire(session)  # as the end of its process does, if it could not leave
            elif kind < 0.4:
                world.members[name].coordinator.zookeeper.disconnect()
            elif kind < 0.7:
                world.broker.lose.append(rng.choice(["before", "after"]))
            else:
                world.members[name].coordinator.zookeeper.reconnect()
        for one in world.members.values():
            one.coordinator.zookeeper.reconnect()
        await world.join("last")

        await world.settled()
        world.close_all(5)
        await world.committed()

        assert world.rows() == world.expected()
        await world.end()

    in_virtual_time(test)


def test_the_status_of_a_member_has_the_agreed_shape() -> None:
    """What control reads: identity, lease, rates, one row per stream."""

    async def test() -> None:
        world = GroupWorld(LONG, 2)
        one = await world.join("a")
        node = MemberNode(address="http://a", pid=7, since=8)
        rates = Rates(asyncio.get_running_loop().time)
        before = member_status([], "a", "default", node, rates)
        await world.settled()
        member_status([one.member], "a", "default", node, rates)
        await asyncio.sleep(6)
        member_status([one.member], "a", "default", node, rates)
        for _ in range(60):
            world.say("k", data="x" * 70)
        await asyncio.sleep(6)

        status = member_status([one.member], "a", "default", node, rates)

        assert (before["state"], before["lease_ms"], before["streams"]) == ("joining", 0, [])
        assert {"id": "a", "group": "default", "address": "http://a", "pid": 7, "since": 8}.items() <= (
            status.items()
        )
        assert (status["state"], status["zookeeper_session"]) == ("active", hex(one.session_id))
        assert 0 < status["lease_ms"] <= TIMEOUT_S * 1000
        assert [row["stream"] for row in status["streams"]] == [0, 1]
        assert 9 <= status["rates"]["fragments_per_s"] <= 10.1
        await world.end()

    in_virtual_time(test)


def test_the_metrics_of_a_member_are_totals_of_its_streams() -> None:
    """Every name begins with `baton_`; counters go on from what earlier owners counted."""

    async def test() -> None:
        world = GroupWorld(LONG, 2)
        await world.join("a")
        await world.settled()
        world.say("k", end=True)
        await world.committed()
        await world.stop("a")
        one = await world.join("b")
        await world.settled()
        world.say("k", stream=1)
        await world.committed()

        metrics = ConsumerMetrics([one.member]).registry

        assert metrics.get_sample_value("baton_fragments_total") == 2
        assert metrics.get_sample_value("baton_sessions_total") == 1
        assert metrics.get_sample_value("baton_streams") == 2
        assert metrics.get_sample_value("baton_open_sessions") == 1
        assert metrics.get_sample_value("baton_lag") == 0
        assert all(metric.name.startswith("baton_") for metric in metrics.collect())
        await world.end()

    in_virtual_time(test)
