"""Brokers that are taken for dead: rightly, by one other only, or by all others while they live.

An acknowledged record of acks=all stays in any case, and nobody leads in another's epoch. What a live leader has
acknowledged with acks=1 is lost only when it is fenced wrongly, for which the controller and another broker must both
see it refuse; the last tests show what one sighting alone would cost.
"""

from typing import TypeVar

import pytest

from headrace.broker.cluster.fenced_metadata import ALL_EVERY_S, PAUSE_MAX_S
from headrace.controller.decisions import fencing
from headrace.controller.decisions.fencing import parse_suspicion
from headrace.errors import ErrorCode
from headrace.metadata import znodes
from headrace.metadata.model import PartitionLeadership
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.records.format2.batch import Record, encode_batch
from tests import rotation
from tests.examples import slow_after
from tests.simulation import plan as kinds
from tests.simulation.broker import SimBroker
from tests.simulation.checker import check, report
from tests.simulation.clients import Client, Producer
from tests.simulation.cluster import SECOND_US, Cluster, finish, run, started
from tests.simulation.finding import Finding
from tests.simulation.history import Outcome, Promises
from tests.simulation.plan import Plan

R = TypeVar("R", bound=Message)

ACKS_ALL = Promises()
SESSION_MS = 30_000
"""So long that nothing in these tests comes of a session's end."""


class SparseClient(Client):
    """A client that asks for metadata where it has a connection, as librdkafka does. A producer's only connection may
    be that to the leader."""

    def anyone(self) -> list[int]:
        return [number for number in super().anyone() if self.is_connected(number)] or super().anyone()


class Scene:
    """Three brokers with one partition; producers with acks=all and acks=1, whose clients reach everybody always."""

    def __init__(self, seed: int, *, is_controller: bool | None = None, settings: dict[str, str] | None = None) -> None:
        """`is_controller`: whether the leader is to be the controller."""
        plan = Plan(
            replicas=3, min_insync_replicas=1, partitions=1, producers=(), readers=0, session_timeout_ms=SESSION_MS,
            settings={"auto.leader.rebalance.enable": "false", **(settings or {})},
        )  # fmt: skip
        self.cluster = Cluster(seed, plan)
        started(self.cluster)
        self.run_until(self.cluster.led_and_in_sync)
        self.wait(1)  # everybody looks after everybody
        if is_controller is not None:
            self.move_controller(is_controller)
        self.producers = []
        for name, acks in (("all", -1), ("one", 1)):
            client = SparseClient(self.cluster, f"producer-{name}")
            producer = Producer(client, name, acks=acks, is_idempotent=True, pace_ms=20)
            client.process.call(client.process.loop.create_task, producer.run())
            self.producers.append(producer)
        self.writes_go_on()

    def move_controller(self, to_leader: bool) -> None:
        """Makes the leader's broker controller, or another one."""
        for _ in range(30):
            if (self.controller is self.leader) is to_leader:
                return
            self.cluster.ensemble.expire(self.controller.host)
            self.wait(1)
            self.run_until(self.cluster.led_and_in_sync, 20)
            self.wait(1)
        raise AssertionError("the controller does not move")

    @property
    def state(self) -> PartitionLeadership:
        return self.cluster.leaderships()[0]

    @property
    def leader(self) -> SimBroker:
        return self.cluster.brokers[self.state.leader]

    @property
    def controller(self) -> SimBroker:
        node = self.cluster.ensemble.store.find(znodes.CONTROLLER)
        assert node is not None
        return self.cluster.brokers[znodes.decode_controller(node.data)]

    def others(self, broker: SimBroker) -> list[SimBroker]:
        return [each for each in self.cluster.brokers.values() if each is not broker]

    def epoch(self, broker: SimBroker) -> int:
        """The czxid of its registration."""
        node = self.cluster.ensemble.store.find(znodes.broker(broker.number))
        return -1 if node is None else node.czxid

    def suspicions(self) -> set[tuple[int, int]]:
        """(of whom, by whom), as the metadata store has it."""
        names = [
            path.rpartition("/")[2] for path in self.cluster.ensemble.store.nodes if znodes.SUSPICIONS + "/" in path
        ]
        return {(found.broker, found.observer) for name in names if (found := parse_suspicion(name)) is not None}

    def deceive(self, observer: SimBroker, about: SimBroker) -> None:
        self.cluster.network.refuse(observer.host, about.host)

    def run_until(self, is_done, seconds: float = 10) -> None:  # type: ignore[no-untyped-def]
        assert self.cluster.scheduler.run(is_done, int(seconds * SECOND_US)), str(self.cluster.timeline)

    def wait(self, seconds: float) -> None:
        self.cluster.scheduler.run_for(int(seconds * SECOND_US))

    def writes_go_on(self, seconds: float = 10) -> None:
        sent, known = self.cluster.history.sent, len(self.cluster.history.sent)
        self.run_until(
            lambda: {each.acks for each in sent[known:] if each.outcome is Outcome.ACKNOWLEDGED} == {-1, 1}, seconds
        )

    def answer(self, broker: SimBroker, request: Message, kind: type[R], version: int) -> R:
        """One broker's answer to a client."""
        done: list[R] = []

        async def ask() -> None:
            done.append(await client.ask(broker.number, request, kind, version))

        client = Client(self.cluster, "asker")
        client.process.call(lambda: client.process.loop.create_task(ask()))
        self.run_until(lambda: bool(done))
        return done[0]

    def leader_in_metadata_of(self, broker: SimBroker) -> tuple[int, int]:
        """(leader, leader epoch), as a client of this broker sees it."""
        topic = m.MetadataRequest.MetadataRequestTopic(name=self.cluster.topic)
        (found,) = self.answer(broker, m.MetadataRequest(topics=[topic]), m.MetadataResponse, 8).topics[0].partitions
        return found.leader_id, found.leader_epoch

    def leader_in_refusal_of(self, broker: SimBroker) -> tuple[int, int]:
        """(leader, leader epoch), as the error of a produce has it (KIP-951)."""
        records = bytes(encode_batch([Record(0, 1, None, b"refused", ())]))
        data = m.ProduceRequest.PartitionProduceData(index=0, records=records)
        topic = m.ProduceRequest.TopicProduceData(name=self.cluster.topic, partition_data=[data])
        request = m.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
        (found,) = self.answer(broker, request, m.ProduceResponse, 10).responses[0].partition_responses
        assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        return found.current_leader.leader_id, found.current_leader.leader_epoch

    def end(self, promises: Promises = ACKS_ALL) -> list[Finding]:
        """What is wrong, after everything was healed."""
        self.cluster.network.heal()
        for broker in self.cluster.brokers.values():
            if not broker.is_running:
                broker.start()
        self.run_until(self.cluster.led_and_in_sync, 30)
        for producer in self.producers:
            producer.is_stopping = True
        self.wait(7)
        failures = finish(self.cluster)
        assert not failures, "\n".join([*failures, str(self.cluster.timeline)])
        return check(self.cluster.history, promises)

    def end_well(self, promises: Promises = ACKS_ALL) -> None:
        findings = self.end(promises)
        assert not findings, "\n".join([*report(findings), str(self.cluster.timeline)])


@pytest.mark.parametrize("seed", slow_after(1, (1, 2, 3)))
@pytest.mark.parametrize("is_controller", (False, True), ids=("another broker", "the controller"))
def test_a_killed_leader_is_replaced_long_before_its_session_ends(seed: int, is_controller: bool) -> None:
    scene = Scene(seed, is_controller=is_controller)
    victim = scene.leader
    epoch = scene.state.leader_epoch
    victim.kill()
    scene.run_until(lambda: scene.state.leader_epoch > epoch and scene.state.leader != victim.number, 2)
    assert scene.epoch(victim) >= 0, "its session lives on"
    assert victim.number not in scene.state.isr
    assert scene.controller is not victim
    scene.writes_go_on()
    scene.end_well()


@pytest.mark.parametrize("seed", slow_after(1, (1, 2, 3)))
@pytest.mark.parametrize("is_controller", (False, True), ids=("another broker", "the controller"))
def test_a_live_leader_that_all_others_take_for_dead_loses_nothing_that_is_committed(
    seed: int, is_controller: bool
) -> None:
    scene = Scene(seed, is_controller=is_controller)
    victim = scene.leader
    epoch = scene.state.leader_epoch
    registered = scene.epoch(victim)
    for observer in scene.others(victim):
        scene.deceive(observer, victim)
    scene.run_until(lambda: scene.state.leader != victim.number, 2)
    assert scene.state.leader_epoch > epoch
    scene.run_until(lambda: scene.epoch(victim) > registered, 2)
    assert scene.cluster.ensemble.store.find(znodes.fenced(victim.number)) is None, "it took the mark away"
    scene.writes_go_on()
    scene.cluster.network.heal()
    scene.run_until(lambda: victim.number in scene.state.isr)
    scene.end_well()


@pytest.mark.slow
@pytest.mark.parametrize("seed", slow_after(1, (1, 2, 3)))
@pytest.mark.parametrize("is_controller", (False, True), ids=("another broker", "the controller"))
def test_a_fenced_broker_names_later_leaders_though_no_controller_reaches_it(seed: int, is_controller: bool) -> None:
    scene = Scene(seed, is_controller=is_controller)
    victim = scene.leader
    registered = scene.epoch(victim)
    for observer in scene.others(victim):
        scene.deceive(observer, victim)
    scene.run_until(lambda: scene.epoch(victim) > registered, 2)
    scene.wait(1)
    first = (scene.state.leader, scene.state.leader_epoch)
    assert first[0] not in (victim.number, -1)
    assert scene.leader_in_metadata_of(victim) == first
    assert scene.leader_in_refusal_of(victim) == first
    scene.leader.kill()
    scene.run_until(lambda: scene.state.leader not in (first[0], victim.number, -1), SESSION_MS / 1000 + 10)
    scene.wait(ALL_EVERY_S + 2 * PAUSE_MAX_S)
    assert scene.leader_in_metadata_of(victim) == (scene.state.leader, scene.state.leader_epoch)
    scene.end_well()


@pytest.mark.slow
@pytest.mark.parametrize("seed", slow_after(1, (1, 2, 3)))
@pytest.mark.parametrize("is_controller", (False, True), ids=("another broker", "the controller"))
def test_a_broker_that_one_other_takes_for_dead_leads_on_and_loses_nothing(seed: int, is_controller: bool) -> None:
    scene = Scene(seed, is_controller=is_controller)
    victim = scene.leader
    state = scene.state
    controller, registered = scene.controller, scene.epoch(victim)
    deceived = controller if victim is not controller else scene.others(victim)[0]
    scene.deceive(deceived, victim)
    scene.run_until(lambda: scene.suspicions() == {(victim.number, deceived.number)})
    scene.wait(5)
    scene.cluster.network.heal()
    scene.run_until(lambda: not scene.suspicions())
    assert (scene.state.leader, scene.epoch(victim), scene.controller) == (state.leader, registered, controller)
    scene.end_well(Promises(acks_one_kept=True))


@pytest.mark.parametrize("seed", slow_after(1, (1, 2)))
def test_two_others_that_are_not_the_controller_do_not_fence_either(seed: int) -> None:
    plan = Plan(replicas=4, min_insync_replicas=1, partitions=1, session_timeout_ms=SESSION_MS)
    cluster = Cluster(seed, plan)
    started(cluster)
    assert cluster.scheduler.run(cluster.led_and_in_sync, 10 * SECOND_US)
    cluster.scheduler.run_for(SECOND_US)
    node = cluster.ensemble.store.find(znodes.CONTROLLER)
    assert node is not None
    controller = znodes.decode_controller(node.data)
    victim, *deceived = [each for each in cluster.brokers.values() if each.number != controller]
    for each in deceived:
        cluster.network.refuse(each.host, victim.host)
    cluster.scheduler.run_for(4 * SECOND_US)
    assert sum(znodes.SUSPICIONS + "/" in path for path in cluster.ensemble.store.nodes) == 2
    assert cluster.ensemble.store.find(znodes.fenced(victim.number)) is None
    assert not finish(cluster)


def test_a_silent_leader_is_not_fenced() -> None:
    scene = Scene(1)
    victim = scene.leader
    victim.lose_power()
    scene.wait(SESSION_MS / 1000 / 2)
    assert scene.state.leader == victim.number
    assert not scene.suspicions()
    scene.run_until(lambda: scene.state.leader != victim.number, SESSION_MS / 1000)
    scene.end_well()


def test_nobody_is_fenced_where_the_setting_is_off() -> None:
    scene = Scene(1, settings={"headrace.fencing.enable": "false"})
    victim = scene.leader
    victim.kill()
    scene.wait(SESSION_MS / 1000 / 2)
    assert scene.state.leader == victim.number
    scene.end_well()


def test_a_leader_whose_isr_is_itself_alone_is_not_fenced() -> None:
    scene = Scene(1, is_controller=False)
    victim = scene.leader
    followers = scene.others(victim)
    for each in followers:
        scene.cluster.network.cut(each.host, victim.host)  # what they fetch does not arrive
    scene.run_until(lambda: scene.state.isr == (victim.number,))
    scene.cluster.network.heal()
    for each in followers:
        scene.deceive(each, victim)
    scene.run_until(lambda: len(scene.suspicions()) == 2)
    scene.wait(2)
    assert scene.state.leader == victim.number
    scene.end_well(Promises(acks_one_kept=True))


ROUGH = Plan(faults=(kinds.REFUSE, kinds.CRASH), failures_max=2, gap_ms=900, min_insync_replicas=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", rotation.in_turn(*range(20), a_day=5))
def test_whoever_is_taken_for_dead_by_whom_nothing_committed_is_lost(seed: int) -> None:
    result = run(seed, ROUGH)
    assert result.is_good, result.story()


@pytest.mark.slow
def test_one_sighting_alone_would_lose_what_a_live_leader_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "WITNESSES", 1)
    for seed in range(27, 127):  # about one in ten shows it, and the first of these
        scene = Scene(seed, is_controller=False)
        victim = scene.leader
        scene.deceive(scene.controller, victim)
        scene.run_until(lambda scene=scene, victim=victim: scene.state.leader != victim.number, 5)
        scene.writes_go_on()
        findings = scene.end(Promises(acks_one_kept=True))
        assert all(finding.kind == "lost" and "acks=1" in finding.text for finding in findings), report(findings)
        if findings:
            return
    pytest.fail("100 seeds lost nothing")
