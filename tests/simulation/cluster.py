"""One run: brokers, ensemble, clients and faults in virtual time, then healing, then a look at everything.

    run(seed) -> Result       the same seed gives the same run, to the last message and the last line

Phases: the brokers start and the topic is made; clients work while the nemesis does its work; everything is healed and
whoever is dead started again; the cluster must become whole within a bounded time; each partition must take a write;
the replicas' logs are read from their start; the checker looks at the history.
"""

import json
import logging
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import pytest

from headrace.broker.partitions.partition import Partition
from headrace.broker.services import Services
from headrace.coordinators.transactions.transaction import TransactionState
from headrace.errors import ErrorCode
from headrace.log.segment import file_records, preallocation
from headrace.metadata import znodes
from headrace.metadata.model import PartitionLeadership, Replicas
from headrace.metastore.store import Create, Delete, Op, Set
from headrace.protocol import messages as m
from headrace.records.any_format import iter_any_headers
from headrace.records.format2.batch import Record
from headrace.records.format2.control import read_marker
from headrace.records.format2.header import BatchHeader
from headrace.types import TopicPartition
from tests.garbage import collect_if_large
from tests.records.decoding import decode_any
from tests.simulation.broker import SimBroker
from tests.simulation.checker import check, report
from tests.simulation.clients import Client, Committer, Producer, Reader, marker_text
from tests.simulation.finding import Finding
from tests.simulation.flow_watch import FlowWatch
from tests.simulation.group_members import GroupWorker, unsettled
from tests.simulation.history import (
    OFFSETS_PARTITION,
    SHARES_PARTITION,
    Availability,
    History,
    Kind,
    Led,
    Replica,
    Stored,
    Unfinished,
)
from tests.simulation.nemesis import Nemesis
from tests.simulation.network import Network
from tests.simulation.pipelined import PipelinedProducer
from tests.simulation.plan import SHARE_STATE_PARTITIONS, Plan, draw
from tests.simulation.scheduler import Exhausted, Scheduler
from tests.simulation.share_members import ShareWorker, read_from_start, undrained
from tests.simulation.side_topic import SIDE, SideTopic
from tests.simulation.store import Ensemble
from tests.simulation.tenancy import LODGER, Tenancy
from tests.simulation.timeline import Timeline
from tests.simulation.transactional_workers import Application, CommittedReader, Processor, Writer

SECOND_US = 1_000_000
START_US = 20 * SECOND_US
HEALING_US = 30 * SECOND_US
"""Within this much virtual time after the last fault the cluster must be whole."""

OFFSETS = TopicPartition("__consumer_offsets", 0)
"""Where groups' offsets are; there once a group was asked for."""

TRANSACTIONS = "__transaction_state"
SHARES = "__share_group_state"
SETTLING_US = 20 * SECOND_US
"""Within this much virtual time after that every transaction must have ended."""

_SAMPLE_US = 40_000


class Result(NamedTuple):
    """What came of a run."""

    seed: int | str
    plan: Plan
    findings: list[Finding]
    failures: list[str]
    timeline: Timeline
    steps: int
    messages: int

    @property
    def is_good(self) -> bool:
        return not self.findings and not self.failures

    def headlines(self) -> list[str]:
        """What was planned, and what is wrong."""
        wrong = [*report(self.findings), *self.failures]
        return [f"seed {self.seed}: {self.plan}", *(f"  {line}" for line in wrong)]

    def story(self) -> str:
        """For people: what was planned, what happened, what is wrong, how to see it again."""
        head = self.headlines()
        replay = f"HEADRACE_SIMULATION_SEED={self.seed} .venv/bin/python -m pytest tests/simulation -k replay -s"
        return "\n".join([*head, f"replay: {replay}", "", str(self.timeline), "", *head])


class Cluster:
    """Everything of one run."""

    topic = "events"

    def __init__(self, seed: int | str, plan: Plan) -> None:
        self.seed, self.plan = seed, plan
        self.scheduler = Scheduler(seed)
        self.timeline = Timeline(self.scheduler)
        self.history = History()
        self.network = Network(self.scheduler)
        self.ensemble = Ensemble(self.network, session_timeout_us=plan.session_timeout_ms * 1000)
        self.ensemble.store.on_write = self._on_tree_write
        self.ensemble.on_expired = lambda host, session: self.timeline.note("zookeeper", f"forgets {host}")
        self.brokers = {number: SimBroker(self, number) for number in range(1, plan.replicas + plan.spare_brokers + 1)}
        self.failures: list[str] = []
        self.applications: list[Application] = []
        self.members: list[GroupWorker] = []
        self.sharers: list[ShareWorker] = []
        self.committed_readers: list[CommittedReader] = []
        self.committer: Producer | Reader | Committer | None = None
        self._log_starts: dict[tuple[int, TopicPartition], int] = {}
        self._last_led: dict[tuple[int, TopicPartition], tuple[int, int, int]] = {}
        self.tenancy = Tenancy(self)
        self.flow_watch = FlowWatch(self)
        self.side_topic = SideTopic(self)
        self.nemesis = Nemesis(self)
        self.ensemble.on_write_begun = self.nemesis.windows.write_begun

    # The phases

    def run(self) -> None:
        """All of it."""
        if not self.start():
            self.failures.append("the cluster did not start, or its topic was not made")
            return
        self.network.weather = self.plan.weather
        workers = self._work()
        self.tenancy.begin()
        if self.plan.side_topic:
            self.side_topic.begin()
        self.nemesis.begin()
        self.scheduler.run_for(self.plan.duration_ms * 1000)
        self.nemesis.end()
        self.timeline.note("nemesis", "everything is healed")
        for worker in workers:
            worker.is_stopping = True
        for member in self.members:
            member.is_settling = True
        for sharer in self.sharers:
            sharer.is_settling = True
        self.tenancy.stop()
        self.side_topic.is_stopping = True
        if self.plan.side_topic and not self.scheduler.run(lambda: self.side_topic.has_ended, HEALING_US):
            self.failures.append(f"{SIDE} cannot be made or deleted after everything was healed")
        whole = self.scheduler.run(self._is_whole, HEALING_US)
        self.timeline.note("cluster", "is whole again" if whole else "is not whole")
        if self.members:
            self._settle_members()
        if self.sharers:
            self._drain()
        if self.plan.has_transactions:
            self._settle()
        if self.plan.instances:
            self._settle_instances()
        self.look()

    def start(self) -> bool:
        """Starts the brokers and makes the topic; whether that came about."""
        for broker in self.brokers.values():
            broker.start()
        self._sample()
        if not self.scheduler.run(lambda: all(broker.is_ready for broker in self.brokers.values()), START_US):
            return False
        self.admin = Client(self, "admin")
        works = [self._make_topic]
        if self.plan.sharers:
            works.append(partial(read_from_start, self.admin))
        if self.plan.instances:
            works.append(self.tenancy.make)
        for work in works:
            done = self._do(work())
            if not self.scheduler.run(partial(bool, done), START_US) or done[0] is not True:
                return False
        return True

    async def _make_topic(self) -> bool:
        plan = self.plan
        settings = {
            "min.insync.replicas": str(plan.min_insync_replicas),
            "segment.index.bytes": "1024",
            **plan.topic_settings,
        }
        topic = m.CreateTopicsRequest.CreatableTopic(
            name=self.topic,
            num_partitions=plan.partitions,
            replication_factor=plan.replicas,
            configs=[
                m.CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in settings.items()
            ],
        )
        request = m.CreateTopicsRequest(topics=[topic], timeout_ms=5000)
        for _ in range(20):
            for number in self.brokers:
                answer = await self.admin.ask(number, request, m.CreateTopicsResponse, 5, 6000)
                code = ErrorCode(answer.topics[0].error_code)
                if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    return True
            await self.admin.pause(100, 200)
        return False

    def _work(self) -> Sequence[Producer | Reader | Committer | Application | CommittedReader]:
        workers: list[Producer | Reader | Committer] = []
        for number, (acks, is_idempotent) in enumerate(self.plan.producers, 1):
            client = Client(self, f"producer-{number}")
            workers.append(Producer(client, f"p{number}", acks=acks, is_idempotent=is_idempotent, pace_ms=60))
            client.process.call(client.process.loop.create_task, workers[-1].run())
        for number in range(1, self.plan.pipelines + 1):
            client = Client(self, f"pipeline-{number}")
            workers.append(PipelinedProducer(client, f"q{number}", pace_ms=60))
            client.process.call(client.process.loop.create_task, workers[-1].run())
        for number in range(1, self.plan.readers + 1):
            client = Client(self, f"reader-{number}")
            rack = f"rack-{number}" if number == 1 and self.plan.reads_followers else ""
            plan = self.plan
            reader = Reader(client, rack, checks_positions=plan.checks_positions, rewinds=plan.deletes_records)
            workers.append(reader)
            client.process.call(client.process.loop.create_task, workers[-1].run())
        if self.plan.has_group:
            client = Client(self, "group")
            workers.append(Committer(client, "g"))
            client.process.call(client.process.loop.create_task, workers[-1].run())
            self.committer = workers[-1]
        self._use_transactions()
        self.members = [GroupWorker(self, number) for number in range(1, self.plan.members + 1)]
        self.sharers = [ShareWorker(self, number) for number in range(1, self.plan.sharers + 1)]
        for member in self.members:
            member.start()
        for sharer in self.sharers:
            sharer.start()
        return [*workers, *self.applications, *self.committed_readers]

    def _use_transactions(self) -> None:
        for number, version in enumerate(self.plan.writers, 1):
            self.applications.append(Writer(self, f"w{number}", version, pace_ms=100))
        processors = [
            Processor(self, f"c{number}", each, pace_ms=100) for number, each in enumerate(self.plan.processors, 1)
        ]
        self.applications += processors
        for application in self.applications:
            application.start()
        for number in range(1, self.plan.committed_readers + 1):
            client = Client(self, f"committed-reader-{number}")
            rack = f"rack-{number}" if self.plan.reads_followers else ""
            reader = CommittedReader(client, [each.group for each in processors], rack)
            self.committed_readers.append(reader)
            client.process.call(client.process.loop.create_task, reader.run())

    def _do(self, work: object) -> list[object]:
        """Runs a coroutine as the administrator; its result appears in the list."""
        done: list[object] = []

        async def run() -> None:
            try:
                done.append(await work)  # type: ignore[misc]
            except Exception as error:
                done.append(error)

        self.admin.process.call(lambda: self.admin.process.loop.create_task(run()))
        return done

    # Looking on

    def leaderships(self) -> dict[int, PartitionLeadership]:
        """What the metadata store says of each partition of the topic."""
        return {key.partition: state for key, state in self.all_leaderships().items() if key.topic == self.topic}

    def all_leaderships(self) -> dict[TopicPartition, PartitionLeadership]:
        """What the metadata store says of each partition, those of internal topics among them once they are there."""
        keys = [TopicPartition(self.topic, number) for number in range(self.plan.partitions)]
        if self.plan.has_transactions:
            keys += [TopicPartition(TRANSACTIONS, number) for number in range(self.plan.transaction_partitions)]
        if self.plan.sharers:
            keys += [TopicPartition(SHARES, number) for number in range(SHARE_STATE_PARTITIONS)]
        keys += self.tenancy.partitions()
        keys += self.side_topic.partitions()
        found = {}
        for key in (*keys, OFFSETS):
            node = self.ensemble.store.find(znodes.partition_state(*key))
            if node is not None:
                found[key] = znodes.decode_leadership(node.data, node.version, node.mzxid)
        return found

    def replicas(self, key: TopicPartition) -> Replicas:
        """Whom the metadata store says to have replicas of a partition."""
        node = self.ensemble.store.find(znodes.topic(key.topic))
        assert node is not None
        return znodes.decode_topic(key.topic, node.data).partitions[key.partition]

    def holders(self, key: TopicPartition) -> list[SimBroker]:
        """The brokers that should have a replica."""
        return [self.brokers[each] for each in self.replicas(key).replicas]

    def is_held(self, key: TopicPartition) -> bool:
        """Whether a broker has a replica: those of a deleted topic go before the metadata store forgets it."""
        return any(each.parts is not None and each.parts.replicas.find(key) is not None for each in self.holders(key))

    def controller(self) -> SimBroker | None:
        """Whom the metadata store says to be controller."""
        node = self.ensemble.store.find(znodes.CONTROLLER)
        return None if node is None else self.brokers[znodes.decode_controller(node.data)]

    def log_start(self, broker: int, number: int) -> int:
        """Where the log of a partition of the topic starts at a broker, or did when that was last seen."""
        key, parts = TopicPartition(self.topic, number), self.brokers[broker].parts
        found = parts.replicas.find(key) if parts is not None else None
        return self._log_starts.get((broker, key), 0) if found is None else found.log.log_start_offset

    def led_and_in_sync(self) -> bool:
        """Whether every partition has a leader, every replica is in its ISR, and none is moving, as the metadata
        store has it."""
        states = self.all_leaderships()
        return sum(key.topic == self.topic for key in states) == self.plan.partitions and all(
            state.has_leader
            and sorted(state.isr) == sorted((found := self.replicas(key)).replicas)
            and not found.adding + found.removing
            for key, state in states.items()
        )

    def _is_whole(self) -> bool:
        return (
            all(broker.is_ready for broker in self.brokers.values())
            and self.led_and_in_sync()
            and all(
                self._knows(broker, key, state)
                for key, state in self.all_leaderships().items()
                for broker in self.holders(key)
            )
        )

    @staticmethod
    def _knows(broker: SimBroker, key: TopicPartition, state: PartitionLeadership) -> bool:
        """Whether a replica is in the epoch that the metadata store has."""
        partition = broker.parts.replicas.find(key) if broker.parts is not None else None
        return partition is not None and partition.leader_epoch == state.leader_epoch

    def _sample(self) -> None:
        """Who believes to lead what."""
        for broker in self.brokers.values():
            if broker.parts is None or not broker.is_running:
                continue
            for partition in broker.parts.replicas:
                state, key = partition.state, partition.key
                self._log_starts[broker.number, key] = partition.log.log_start_offset
                if not state.is_leader:
                    continue
                seen = (state.leader_epoch, state.high_watermark, partition.log.log_end_offset)
                if self._last_led.get((broker.number, key)) != seen:
                    self._last_led[broker.number, key] = seen
                    home = self._home(key)
                    if home is not None:
                        history, number = home
                        history.led.append(Led(number, seen[0], broker.number, self.scheduler.now_us, seen[1], seen[2]))
        if self.plan.instances:
            self.flow_watch.look()
        self.network.process.call_in(_SAMPLE_US, self._sample)

    def _on_tree_write(self, zxid: int, ops: Sequence[Op]) -> None:
        self.nemesis.windows.written(ops)
        self.tenancy.written(ops)
        for op in ops:
            match op:
                case Create(path, data) | Set(path, data) if path.endswith("/state"):
                    told = json.loads(data)
                    topic, _, number = path.removeprefix(znodes.TOPICS + "/").removesuffix("/state").split("/")
                    name = f"{topic}-{number}"
                    self.nemesis.isr_written(TopicPartition(topic, int(number)), told["isr"])
                    self.timeline.note(
                        "tree",
                        f"{name}: leader {told['leader']} in epoch {told['leader_epoch']}, ISR {told['isr']} "
                        f"(controller epoch {told['controller_epoch']})",
                    )
                case Set(path, data) if path == znodes.topic(self.topic):
                    for partition, found in sorted(znodes.decode_topic(self.topic, data).partitions.items()):
                        moving = f", adding {list(found.adding)}, removing {list(found.removing)}"
                        self.timeline.note("tree", f"{self.topic}-{partition}: replicas {list(found.replicas)}{moving}")
                case Create(path, data) if path == znodes.CONTROLLER:
                    self.timeline.note("tree", f"broker {json.loads(data)['brokerid']} becomes controller")
                case Create(path) if path.startswith(znodes.BROKER_IDS + "/"):
                    self.timeline.note("tree", f"broker {path.rpartition('/')[2]} is registered, epoch {zxid}")
                    self.nemesis.registered(int(path.rpartition("/")[2]))
                case Delete(path) if path.startswith(znodes.BROKER_IDS + "/"):
                    self.timeline.note("tree", f"broker {path.rpartition('/')[2]} is gone")

    def broker_failed(self, broker: SimBroker, error: BaseException) -> None:
        """A broker ended by itself, with an error."""
        trace = "".join(traceback.format_exception(error))
        self.failures.append(f"broker {broker.number} ended by itself:\n{trace}")

    # The end

    def _settle(self) -> None:
        """Lets every transaction end, uses every transactional id once more, and reads what is committed."""
        self.scheduler.run(lambda: not self._unfinished(), SETTLING_US)
        if time_out_us := self.time_outs_left_us():
            self.scheduler.run(lambda: not self._unfinished(), time_out_us + SETTLING_US)
        if unfinished := self._unfinished():
            self.history.unfinished += unfinished
            return
        done = [(each, self._do(each.last_transaction())) for each in self.applications]
        self.scheduler.run(lambda: all(result for _, result in done), SETTLING_US)
        for application, result in done:
            if result != [True]:
                what = f"the last transaction of {application.transactional_id} was not committed: {result}"
                self.history.unfinished.append(Unfinished(0, what))
        self.scheduler.run(lambda: not self._unfinished(), SETTLING_US)
        self.history.unfinished += self._unfinished()
        ends = {
            number: partition.high_watermark
            for number in range(self.plan.partitions)
            if (partition := self._led(TopicPartition(self.topic, number))) is not None
        }
        read = [self._do(each.read_all(ends)) for each in self.committed_readers]
        read += [self._do(each.read_groups()) for each in self.committed_readers]
        if not self.scheduler.run(lambda: all(read), SETTLING_US) or any(each != [True] for each in read):
            self.failures.append(f"committed records cannot be read after everything was healed: {read}")

    def time_outs_left_us(self) -> int:
        """How long the open transactions of producers that are gone still have, by the clocks of their coordinators.

        A coordinator that has loaded a transaction compares its own clock with the time at which another broker began
        it. A clock that was set back reaches the time-out late, but by no more than clocks are apart.
        """
        left_ms = [
            each.started_ms + each.timeout_ms - broker.process.now_ms()
            for broker in self.brokers.values()
            if broker.is_ready and broker.parts is not None and broker.process is not None
            for each in broker.parts.transactions.overview()[1]
            if each.state is TransactionState.ONGOING
        ]
        return max(0, min(max(left_ms, default=0), self.nemesis.clocks_apart_ms)) * 1000

    def _settle_members(self) -> None:
        """Lets the members of the group share its partitions, and stop."""
        partitions = self.plan.partitions
        self.scheduler.run(lambda: not unsettled(self.members, partitions), SETTLING_US)
        if wrong := unsettled(self.members, partitions):
            self.history.unowned.append(f"{partitions} partitions: {wrong}")
        for member in self.members:
            member.is_stopping = True
        if not self.scheduler.run(lambda: all(each.has_ended for each in self.members), SETTLING_US):
            self.failures.append("a member of the group does not stop")

    def _drain(self) -> None:
        """Lets the members of the share group accept everything, and stop."""
        self.scheduler.run(lambda: not undrained(self), SETTLING_US)
        if wrong := undrained(self):
            self.history.undrained.append(wrong)
        else:
            for number in range(self.plan.partitions):
                led = self._led(TopicPartition(self.topic, number))
                self.history.share_ends[number] = led.high_watermark if led is not None else 0
        for sharer in self.sharers:
            sharer.is_stopping = True
        if not self.scheduler.run(lambda: all(each.has_ended for each in self.sharers), SETTLING_US):
            self.failures.append("a member of the share group does not stop")

    def _settle_instances(self) -> None:
        """Lets the operator end what it is at, and the controller count what is stored."""
        self.scheduler.run(lambda: self.tenancy.has_ended, 2 * SETTLING_US)
        grace_us = self.tenancy.grace_left_us()
        if grace_us or LODGER not in self.tenancy.definitions:  # it may have gone at the end of that time
            self.scheduler.run(lambda: self.tenancy.has_ended, grace_us + SETTLING_US)
        self.history.instances_left += self.tenancy.left()
        limited = [name for name, each in self.tenancy.definitions.items() if each.capacity is not None]
        self.scheduler.run(lambda: all(map(self.flow_watch.is_exact, limited)), SETTLING_US)
        for name in limited:
            self.flow_watch.note_exact(name)

    def _unfinished(self) -> list[Unfinished]:
        """Applications that have not stopped, and partitions with an open transaction."""
        found = [Unfinished(0, f"{each.transactional_id} runs") for each in self.applications if not each.has_ended]
        for key in self.all_leaderships():
            partition = self._led(key)
            if partition is None:
                found.append(Unfinished(_number(key), "no leader"))
            elif partition.last_stable_offset < partition.high_watermark:
                what = f"a transaction is open at {partition.last_stable_offset}, below {partition.high_watermark}"
                found.append(Unfinished(_number(key), what))
        return found

    def _led(self, key: TopicPartition) -> Partition | None:
        """A partition at its leader."""
        state = self.all_leaderships().get(key)
        if state is None or not state.has_leader:
            return None
        parts = self.brokers[state.leader].parts
        partition = parts.replicas.find(key) if parts is not None else None
        return partition if partition is not None and partition.is_leader else None

    def look(self) -> None:
        """Writes to every partition, lets the replicas take that over, and reads all of them."""
        took: dict[int, list[object]] = {}
        producer = Producer(self.admin, "last", acks=-1, is_idempotent=self.plan.has_epochs, pace_ms=0)
        for number in range(self.plan.partitions):
            took[number] = self._do(producer.send(number, 1))
            self.scheduler.run(partial(bool, took[number]), 10 * SECOND_US)
        # What a leader asked for before the healing may be done now: the ISR shrinks once more, and grows again.
        self.scheduler.run(lambda: self.led_and_in_sync() and self._is_level(), 10 * SECOND_US)
        if isinstance(self.committer, Committer):
            read = self._do(self.committer.finish())
            if not self.scheduler.run(lambda: bool(read), 15 * SECOND_US) or read[0] is not True:
                self.failures.append("a group's offset cannot be read after everything was healed")
        if self.plan.instances:
            self._look_at_instances()
        states = self.all_leaderships()
        for number in range(self.plan.partitions):
            key = TopicPartition(self.topic, number)
            self.history.availability.append(self._availability(key, states.get(key), took[number] == [True]))
        for key in self.side_topic.partitions():
            took_a_write = key.partition in self.side_topic.took
            self.side_topic.history.availability.append(self._availability(key, states.get(key), took_a_write))
        for key, state in states.items():
            for broker in self.holders(key):
                if broker.parts is not None:
                    try:
                        self._read_replica(broker, broker.parts, key, state.isr)
                    except OSError as error:
                        self.failures.append(f"{key} cannot be read at broker {broker.number}: {error!r}")

    def _availability(self, key: TopicPartition, state: PartitionLeadership | None, took_a_write: bool) -> Availability:
        live = tuple(each.number for each in self.holders(key) if each.is_running)
        isr = tuple(state.isr) if state is not None else ()
        leader = state.leader if state is not None else -1
        return Availability(key.partition, leader, tuple(each for each in isr if each in live), live, isr, took_a_write)

    def _look_at_instances(self) -> None:
        """Writes to every partition of the instances, those that were full, too, once there is room again."""
        for name, tenant in self.tenancy.long_lived.items():
            took = self._do(self.tenancy.last_writes(tenant))
            self.scheduler.run(partial(bool, took), 50 * SECOND_US)
            assert tenant.committer is not None
            read = self._do(tenant.committer.finish())
            if not self.scheduler.run(partial(bool, read), 15 * SECOND_US) or read[0] is not True:
                self.failures.append(f"the offset of {name}'s group cannot be read after everything was healed")
            self.scheduler.run(lambda: self.led_and_in_sync() and self._is_level(), 10 * SECOND_US)
            if self.tenancy.definitions[name].capacity is not None:
                self.scheduler.run(partial(self.flow_watch.is_exact, name), SETTLING_US)
                self.flow_watch.note_exact(name)
            states = self.all_leaderships()
            for number in range(self.plan.partitions):
                key = TopicPartition(f"{name}.orders", number)
                tenant.history.availability.append(self._availability(key, states.get(key), took == [True]))
        self.flow_watch.finish()

    def _home(self, key: TopicPartition) -> tuple[History, int] | None:
        """The history to which a partition belongs, and its number there; None if nobody judges it."""
        if key.topic == SIDE:
            return (self.side_topic.history, key.partition) if self.side_topic.has_ended else None
        return self.tenancy.home(key) if "." in key.topic else (self.history, _number(key))

    def _is_level(self) -> bool:
        """Whether every replica has everything, and knows that it is committed."""
        for key in self.all_leaderships():
            ends = set()
            for broker in self.holders(key):
                found = broker.parts.replicas.find(key) if broker.parts is not None else None
                ends.add(None if found is None else found.log.log_end_offset)
                ends.add(None if found is None else found.high_watermark)
            if len(ends) > 1:
                return False
        return True

    def _read_replica(self, broker: SimBroker, parts: Services, key: TopicPartition, isr: tuple[int, ...]) -> None:
        partition = parts.replicas.find(key)
        if partition is None:
            return
        log = partition.log
        records: list[Stored] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            found = log.read(offset, 1 << 20, end_offset=log.log_end_offset, at_least_one=True)
            data = log.read_bytes(found)
            before = offset
            for at, header in iter_any_headers(data):
                batch = data[at : at + header.size_bytes]
                records += [each for each in _stored(key, header, batch) if each.offset >= offset]
                offset = header.next_offset
            if offset == before:
                break
        home = self._home(key)
        if home is None:
            return
        home[0].replicas.append(
            Replica(
                broker.number, home[1], partition.is_leader, partition.leader_epoch, broker.number in isr,
                log.log_start_offset, partition.high_watermark, records,
            )
        )  # fmt: skip
        self.timeline.note(
            f"broker {broker.number}",
            f"{key}: {len(records)} records to {log.log_end_offset}, committed to "
            f"{partition.high_watermark}, epoch {partition.leader_epoch}{', leads' if partition.is_leader else ''}",
        )


def _number(key: TopicPartition) -> int:
    """How the history calls a partition."""
    if key.topic == Cluster.topic:
        return key.partition
    if key.topic == SHARES:
        return SHARES_PARTITION - key.partition
    return OFFSETS_PARTITION if key.topic == OFFSETS.topic else OFFSETS_PARTITION - 1 - key.partition


def _stored(key: TopicPartition, header: BatchHeader, batch: bytes) -> Iterator[Stored]:
    """The records of a batch, or its marker."""
    if header.is_control:
        kind = Kind.COMMIT if read_marker(batch).is_commit else Kind.ABORT
        yield Stored(header.base_offset, header.leader_epoch, marker_text(header, batch), kind, header.producer_id)
        return
    kind = Kind.TRANSACTIONAL if header.is_transactional else Kind.PLAIN
    for record in decode_any(batch):
        yield Stored(record.offset, header.leader_epoch, _shown(key, record), kind, header.producer_id)


def _shown(key: TopicPartition, record: Record) -> str:
    """A record of a log: what a producer sent, or key and value of a group's."""
    value = bytes(record.value or b"")
    if key.topic in (Cluster.topic, SIDE) or "." in key.topic:
        return value.decode()
    return f"{bytes(record.key or b'')!r}: {value!r}"


class _LogLines(logging.Handler):
    """What brokers log: warnings are lines of the timeline, an exception that was only logged is a failure."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(logging.INFO)
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        scheduler = self._cluster.scheduler
        process = scheduler.running
        if process is None or scheduler.is_over:
            return
        self._cluster.timeline.note_log(process.name.replace("-", " "), record.getMessage())
        if record.exc_info and record.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(record.exc_info[1]))
            scheduler.fail(process, f"{record.getMessage()}\n{trace}".rstrip())


def started(cluster: Cluster) -> None:
    """Starts the brokers and makes the topic, for a test that does the rest itself."""
    with _overhearing(cluster):
        assert cluster.start(), str(cluster.timeline)


def finish(cluster: Cluster) -> list[str]:
    """Looks at every replica at the end of such a test; what went wrong besides. The history is then complete."""
    with _overhearing(cluster):
        cluster.look()
        scheduler = cluster.scheduler
        failures = [*cluster.failures, *scheduler.failures, *scheduler.unretrieved()]
        scheduler.dispose()
    return failures


@contextmanager
def _overhearing(cluster: Cluster) -> Iterator[None]:
    """Takes the place of what a simulation must not have from outside: chance, and the log."""
    logger = logging.getLogger("headrace")
    handler, level, propagates = _LogLines(cluster), logger.level, logger.propagate
    urandom, os.urandom = os.urandom, cluster.scheduler.urandom  # ids of topics, names of deleted directories
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        os.urandom = urandom
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates


@contextmanager
def _small_room() -> Iterator[None]:
    """Logs of a few kilobytes have room, as those of a mebibyte and more have outside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preallocation, "ROOM_FROM_BYTES", 1_000)
        for module in (preallocation, file_records):
            patch.setattr(module, "ROOM_BYTES", 4_096)
        yield


def run(seed: int | str, plan: Plan | None = None, prepare: Callable[[Cluster], None] | None = None) -> Result:
    """One run. `prepare` may change the cluster before it starts."""
    collect_if_large()  # the clusters of earlier runs
    plan = plan or draw(seed)
    cluster = Cluster(seed, plan)
    if prepare is not None:
        prepare(cluster)
    network, scheduler = cluster.network, cluster.scheduler
    with _overhearing(cluster), _small_room():
        try:
            cluster.run()
        except Exhausted as error:
            cluster.failures.append(str(error))
        finally:
            failures = [*cluster.failures, *scheduler.failures, *scheduler.unretrieved()]
            cluster.timeline.note("network", f"{network.messages} messages, digest {network.digest:08x}")
            scheduler.dispose()
    if cluster.side_topic.has_ended:
        cluster.history.of_instances[SIDE] = cluster.side_topic.history
    findings = check(cluster.history, plan.promises)
    return Result(seed, plan, findings, failures, cluster.timeline, scheduler.steps, network.messages)
