"""f + 1 replicas tolerate f failures: nothing acknowledged is lost, and writes go on; shown for f = 1 and 2.

Stated apart for a process crash, which leaves the page cache, and for power loss, which takes what was not synced. In
each, f of f + 1 brokers fail one after the other while a producer with acks=all works, `min.insync.replicas` is 1, and
the last one takes writes alone; then they come back, catch up, and the others fail.
"""

import pytest

from headrace.metadata.model import PartitionLeadership
from tests.examples import slow_after
from tests.simulation.broker import SimBroker
from tests.simulation.checker import check, report
from tests.simulation.clients import Client, Producer
from tests.simulation.cluster import SECOND_US, Cluster, finish, started
from tests.simulation.history import History, Outcome, Promises
from tests.simulation.plan import Plan

CRASH, POWER = "process crash", "power loss"


class Scene:
    """A cluster of f + 1 brokers with one partition, a producer that never rests, and somebody who pulls plugs."""

    def __init__(self, seed: int, replicas: int, **settings: object) -> None:
        plan = Plan(replicas=replicas, min_insync_replicas=1, partitions=1, producers=(), readers=0, **settings)  # type: ignore[arg-type]
        self.cluster = Cluster(seed, plan)
        started(self.cluster)
        client = Client(self.cluster, "producer")
        self.producer = Producer(client, "p", acks=-1, is_idempotent=True, pace_ms=20)
        client.process.call(lambda: client.process.loop.create_task(self.producer.run()))

    @property
    def history(self) -> History:
        return self.cluster.history

    @property
    def state(self) -> PartitionLeadership:
        return self.cluster.leaderships()[0]

    @property
    def leader(self) -> SimBroker:
        return self.cluster.brokers[self.state.leader]

    def run_until(self, is_done, seconds: float = 15) -> None:  # type: ignore[no-untyped-def]
        assert self.cluster.scheduler.run(is_done, int(seconds * SECOND_US)), str(self.cluster.timeline)

    def wait(self, seconds: float) -> None:
        self.cluster.scheduler.run_for(int(seconds * SECOND_US))

    def acknowledged(self) -> int:
        return sum(each.outcome is Outcome.ACKNOWLEDGED for each in self.history.sent)

    def writes_go_on(self, seconds: float = 15) -> None:
        """Waits for some more acknowledged records."""
        wanted = self.acknowledged() + 10
        self.run_until(lambda: self.acknowledged() >= wanted, seconds)

    def fail(self, broker: SimBroker, how: str) -> None:
        broker.kill() if how == CRASH else broker.lose_power()

    def come_back(self) -> None:
        for broker in self.cluster.brokers.values():
            if not broker.is_running:
                broker.start()
        self.run_until(self.cluster.led_and_in_sync, 30)

    def end(self) -> None:
        """Everything acknowledged must be there, on every replica."""
        self.producer.is_stopping = True
        self.wait(7)
        failures = finish(self.cluster)
        findings = check(self.history, Promises())
        assert not findings and not failures, "\n".join([*report(findings), *failures, str(self.cluster.timeline)])


@pytest.mark.parametrize("how", (CRASH, POWER))
@pytest.mark.parametrize("failures", slow_after(1, (1, 2)), ids=lambda failures: f"f={failures}")
@pytest.mark.parametrize("seed", slow_after(1, (1, 2, 3)))
def test_f_plus_1_replicas_tolerate_f_failures(seed: int, failures: int, how: str) -> None:
    scene = Scene(seed, failures + 1)
    for _ in range(2):
        scene.writes_go_on()
        for _ in range(failures):
            scene.fail(scene.leader, how)
            scene.writes_go_on()
        assert len(scene.state.isr) == 1
        scene.come_back()
    scene.end()


@pytest.mark.parametrize("how", (CRASH, POWER))
def test_followers_may_fail_all_at_once(how: str) -> None:
    scene = Scene(4, 3)
    scene.writes_go_on()
    for broker in scene.cluster.brokers.values():
        if broker is not scene.leader:
            scene.fail(broker, how)
    scene.writes_go_on()
    scene.come_back()
    scene.end()


def test_when_every_process_crashes_nothing_acknowledged_is_lost() -> None:
    scene = Scene(5, 3)
    for _ in range(3):
        scene.writes_go_on()
        for broker in scene.cluster.brokers.values():
            broker.kill()
        scene.wait(0.5)
        scene.come_back()
    scene.end()


def test_who_comes_back_after_an_unclean_stop_leaves_the_isr_until_it_has_caught_up() -> None:
    scene = Scene(6, 2)
    scene.writes_go_on()
    leader = scene.leader
    (other,) = (each for each in scene.cluster.brokers.values() if each is not leader)
    epoch = scene.state.leader_epoch
    other.lose_power()
    scene.wait(0.05)  # far less than its session: nobody has noticed yet
    other.start()
    isrs: list[tuple[int, ...]] = []

    def has_left_and_come_back() -> bool:
        if not isrs or isrs[-1] != scene.state.isr:
            isrs.append(scene.state.isr)
        return len(isrs) > 2

    scene.run_until(has_left_and_come_back)
    assert [sorted(isr) for isr in isrs] == [[1, 2], [leader.number], [1, 2]]
    assert scene.state.leader == leader.number
    assert scene.state.leader_epoch > epoch
    scene.end()


def test_a_leader_that_comes_back_without_its_tail_does_not_lead_on_and_cuts_nobody_off() -> None:
    scene = Scene(7, 2)
    scene.writes_go_on()
    leader = scene.leader
    leader.lose_power()
    scene.wait(0.05)
    leader.start()
    scene.run_until(lambda: scene.leader is not leader)
    assert leader.number not in scene.state.isr
    scene.come_back()
    scene.end()


def test_after_a_clean_stop_a_broker_need_not_leave_the_isr_for_long_and_nothing_is_lost() -> None:
    scene = Scene(8, 2)
    for _ in range(3):
        scene.writes_go_on()
        stopped = scene.leader
        stopped.stop()
        scene.run_until(lambda stopped=stopped: not stopped.is_running)
        scene.writes_go_on(5)
        scene.come_back()
    scene.end()


def test_with_two_in_sync_replicas_required_a_single_one_takes_no_writes_and_loses_none() -> None:
    scene = Scene(9, 2, topic_settings={"min.insync.replicas": "2"})
    scene.writes_go_on()
    scene.leader.lose_power()
    scene.run_until(lambda: len(scene.state.isr) == 1)
    scene.wait(1)
    before = scene.acknowledged()
    scene.wait(5)
    assert scene.acknowledged() == before
    scene.come_back()
    scene.writes_go_on()
    scene.end()


@pytest.mark.parametrize("seed", slow_after(1, (10, 11, 12)))
def test_where_acknowledged_means_synced_all_may_lose_their_power_at_once(seed: int) -> None:
    scene = Scene(seed, 3, topic_settings={"flush.messages": "1"})
    for _ in range(2):
        scene.writes_go_on()
        for broker in scene.cluster.brokers.values():
            broker.lose_power()
        scene.wait(0.5)
        scene.come_back()
    scene.end()


@pytest.mark.slow
def test_where_it_does_not_that_costs_records_and_the_checker_says_so() -> None:
    kinds = set()
    for seed in range(20, 30):
        scene = Scene(seed, 3)
        scene.writes_go_on()
        for broker in scene.cluster.brokers.values():
            broker.lose_power()
        scene.come_back()
        scene.producer.is_stopping = True
        scene.wait(7)
        finish(scene.cluster)
        kinds |= {finding.kind for finding in check(scene.history, Promises())}
    assert "lost" in kinds
