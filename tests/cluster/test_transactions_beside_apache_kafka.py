"""Transactions in a cluster of Apache Kafka 3.9 and headrace: coordinators, partition leaders and the coordinators of
group offsets are of either kind, in every combination, and change kind in every state of a transaction."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition

from headrace.client import Consumer, ConsumerSettings, Producer, ProducerSettings
from headrace.client.operations.admin import Admin
from headrace.client.operations.transaction_admin import TransactionAdmin, TransactionDescription
from headrace.coordinators.groups.partitioning import partition_for
from headrace.errors import KafkaError
from headrace.protocol import messages as m
from headrace.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.types import TopicPartition
from tests import rotation
from tests.asker import Asker
from tests.cluster.mixed_cluster import COORDINATOR_PARTITIONS, OURS, MixedCluster
from tests.cluster.transactional_clients import FAST, WAIT_S, committed_offset, read_committed
from tests.eventually import eventually
from tests.peers import kafka
from tests.peers.node import ZooKeeper

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or ""),
    pytest.mark.xdist_group("beside-apache-kafka"),
]
THEIRS, THEIR_OTHER = 1, 2
KINDS = {THEIRS: "apache-kafka", OURS: "headrace"}
BOTH = pytest.mark.parametrize("first", rotation.in_turn(*KINDS), ids=KINDS.values())
TOOL = "org.apache.kafka.tools.TransactionsCommand"
HASTY = {"transaction_timeout_ms": 3_000, "socket_timeout_ms": 3_000}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    with (
        ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper,
        MixedCluster(tmp_path_factory.mktemp("mixed"), zookeeper.chroot("transactions")) as cluster,
    ):
        replicas = ([THEIRS, OURS], [OURS, THEIRS], [OURS, THEIRS])
        for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            cluster.assign(topic, *replicas, cleanup_policy="compact")
        yield cluster


@pytest.fixture
def mixed(shared: MixedCluster) -> MixedCluster:
    shared.make_whole()
    return shared


def other(kind: int) -> int:
    """A broker of the other kind."""
    return OURS if kind == THEIRS else THEIRS


def key_of(mixed: MixedCluster, topic: str, coordinator: int, prefix: str) -> str:
    """A transactional id or group that this broker coordinates, now that it leads the partition meant for it."""
    number = 0 if coordinator == THEIRS else 1
    if mixed.state(topic, number)["leader"] != coordinator:
        mixed.lead(topic, coordinator, number)
    return next(
        name
        for name in (f"{prefix}-{each}" for each in range(99))
        if partition_for(name, COORDINATOR_PARTITIONS) == number
    )


def move_coordinator(mixed: MixedCluster, transactional_id: str, broker: int) -> None:
    """Has a broker coordinate the id."""
    mixed.lead(TRANSACTIONS_TOPIC, broker, partition_for(transactional_id, COORDINATOR_PARTITIONS))


def confluent(mixed: MixedCluster, transactional_id: str, **settings: object) -> ConfluentProducer:
    """An initialized producer of confluent-kafka."""
    given = {key.replace("_", "."): value for key, value in settings.items()}
    producer = ConfluentProducer(
        {**FAST, "bootstrap.servers": mixed.bootstrap, "transactional.id": transactional_id, "linger.ms": 0, **given}
    )
    producer.init_transactions(WAIT_S)
    return producer


def begin(producer: ConfluentProducer, topic: str, *values: str, partition: int = 0) -> None:
    """A transaction with these values in a partition, all acknowledged."""
    producer.begin_transaction()
    write(producer, topic, *values, partition=partition)


def write(producer: ConfluentProducer, topic: str, *values: str, partition: int = 0) -> None:
    """More values, acknowledged."""
    for value in values:
        producer.produce(topic, value.encode(), partition=partition)
    assert producer.flush(WAIT_S) == 0


def send_offsets(mixed: MixedCluster, producer: ConfluentProducer, topic: str, group: str, offset: int) -> None:
    """The offset of partition 0, in the transaction."""
    member = ConfluentConsumer({"bootstrap.servers": mixed.bootstrap, "group.id": group})
    metadata = member.consumer_group_metadata()
    producer.send_offsets_to_transaction([ConfluentPartition(topic, 0, offset)], metadata, WAIT_S)
    member.close()


def read_by_ours(mixed: MixedCluster, topic: str, count: int) -> list[str]:
    """The committed values of partition 0 that headrace's consumer finds: `count`, and what comes with them."""
    found: list[str] = []
    settings = ConsumerSettings(auto_offset_reset="earliest", isolation_level="read_committed")
    with Consumer(mixed.bootstrap, settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])

        def is_enough() -> bool:
            found.extend((each.value or b"").decode() for each in consumer.poll(200))
            return len(found) >= count

        eventually(is_enough, f"{count} values", state=lambda: f"{found}\n{mixed.said()}")
    return found


def has(mixed: MixedCluster, topic: str, *wanted: str) -> None:
    """Waits until the committed values of partition 0 are these, for confluent-kafka and for headrace's consumer."""
    values = list(wanted)
    mixed.until(lambda: read_committed(mixed.bootstrap, topic, 1)[0] == values, f"{values} in {topic}")
    assert read_by_ours(mixed, topic, len(values)) == values


def has_same_logs(mixed: MixedCluster, topic: str, producer: ConfluentProducer) -> None:
    """Waits until the replicas of partition 0 are the same. Followers learn a leader's epoch with its first record."""
    begin(producer, topic, "last")
    producer.commit_transaction(WAIT_S)
    mixed.until(lambda: mixed.have_same_logs(topic), "the same bytes and epochs")


def described(mixed: MixedCluster, transactional_id: str) -> TransactionDescription:
    """What its coordinator knows."""
    with Admin(mixed.bootstrap) as admin:
        return TransactionAdmin(admin.cluster).describe_transaction(transactional_id)


@pytest.mark.parametrize(
    ("coordinator", "leader"),
    [
        pytest.param(
            *pair,
            marks=rotation.unless_today(sum(pair) % 2, 2),
            id=f"{KINDS[pair[0]]} coordinates, {KINDS[pair[1]]} leads",
        )
        for pair in product(KINDS, KINDS)
    ],
)
def test_every_outcome(mixed: MixedCluster, coordinator: int, leader: int) -> None:
    topic = f"outcomes-{coordinator}-{leader}"
    mixed.assign(topic, [leader, other(leader)])
    groups = [key_of(mixed, OFFSETS_TOPIC, each, f"{topic}-group-{each}") for each in KINDS]
    name = key_of(mixed, TRANSACTIONS_TOPIC, coordinator, topic)
    with Asker(mixed.bootstrap.split(",")[0]) as asker:
        (found,) = asker.ask(m.FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4).coordinators
    assert (found.node_id, mixed.state(topic)["leader"]) == (coordinator, leader)

    late_name = key_of(mixed, TRANSACTIONS_TOPIC, coordinator, f"{topic}-late")
    late = confluent(mixed, late_name, **HASTY)
    begin(late, topic, "late")
    send_offsets(mixed, late, topic, groups[0], 99)
    producer = confluent(mixed, name)
    for outcome, offset in (("committed", 5), ("aborted", 98), ("committed again", 7)):
        begin(producer, topic, outcome)
        for group in groups:
            send_offsets(mixed, producer, topic, group, offset)
        producer.abort_transaction(WAIT_S) if outcome == "aborted" else producer.commit_transaction(WAIT_S)
    own_name = key_of(mixed, TRANSACTIONS_TOPIC, coordinator, f"{topic}-ours")
    with Producer(mixed.bootstrap, ProducerSettings(transactional_id=own_name)) as ours:
        ours.init_transactions()
        for outcome in ("ours", "aborted by ours"):
            ours.begin()
            ours.send(topic, outcome.encode(), partition=0)
            ours.send_offsets({TopicPartition(topic, 0): 8 if outcome == "ours" else 97}, groups[0])
            ours.commit() if outcome == "ours" else ours.abort()

    begin(producer, topic, "fenced")
    successor = confluent(mixed, name)
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(WAIT_S)
    assert refused.value.args[0].fatal()
    begin(successor, topic, "successor")
    successor.commit_transaction(WAIT_S)

    mixed.until(lambda: described(mixed, late_name).state == "CompleteAbort", "the time-out")
    with pytest.raises(KafkaException):
        late.commit_transaction(WAIT_S)
    for _ in range(2):
        has(mixed, topic, "committed", "committed again", "ours", "successor")
        assert [committed_offset(mixed.bootstrap, group, topic) for group in groups] == [8, 7]
        mixed.lead(topic, other(leader), 0)  # which knows the outcomes from its replica
    has_same_logs(mixed, topic, successor)


@BOTH
def test_partitions_change_their_leader_in_open_transactions(mixed: MixedCluster, first: int) -> None:
    topic = f"led-by-{first}-first"
    mixed.assign(topic, [first, other(first)])
    producers = {}
    for coordinator, outcome in product(KINDS, ("commits", "aborts")):
        value = f"{KINDS[coordinator]} {outcome}"
        name = key_of(mixed, TRANSACTIONS_TOPIC, coordinator, f"{topic}-{coordinator}-{outcome}")
        producers[value] = confluent(mixed, name)
        begin(producers[value], topic, f"{value}, before")
    mixed.lead(topic, other(first), 0)
    assert read_committed(mixed.bootstrap, topic, 1) == {0: []}
    for value, producer in producers.items():
        write(producer, topic, f"{value}, after")
        producer.commit_transaction(WAIT_S) if value.endswith("commits") else producer.abort_transaction(WAIT_S)
    values = [f"{kind} commits, {when}" for when in ("before", "after") for kind in KINDS.values()]
    has(mixed, topic, *values)
    mixed.lead(topic, first, 0)
    has(mixed, topic, *values)
    has_same_logs(mixed, topic, next(iter(producers.values())))


@BOTH
def test_coordinators_change_their_kind_in_open_and_after_complete_transactions(
    mixed: MixedCluster, first: int
) -> None:
    topic = f"coordinated-by-{first}-first"
    mixed.assign(topic, [first, other(first)], [other(first), first])
    group = key_of(mixed, OFFSETS_TOPIC, first, f"{topic}-group")
    name = key_of(mixed, TRANSACTIONS_TOPIC, first, topic)
    fenced_name = key_of(mixed, TRANSACTIONS_TOPIC, first, f"{topic}-fenced")
    timed_name = key_of(mixed, TRANSACTIONS_TOPIC, first, f"{topic}-timed")
    producer, fenced = confluent(mixed, name), confluent(mixed, fenced_name)
    timed = confluent(mixed, timed_name, **HASTY)
    for each in (timed, fenced, producer):
        begin(each, topic, "first" if each is producer else "never")
    send_offsets(mixed, producer, topic, group, 4)
    epoch = described(mixed, name).producer_epoch
    move_coordinator(mixed, name, other(first))
    write(producer, topic, "second")
    write(producer, topic, "elsewhere", partition=1)  # a partition more, added at the new coordinator
    producer.commit_transaction(WAIT_S)
    successor = confluent(mixed, fenced_name)  # the new coordinator aborts what the old one knew
    with pytest.raises(KafkaException) as refused:
        fenced.commit_transaction(WAIT_S)
    assert refused.value.args[0].fatal()
    mixed.until(lambda: described(mixed, timed_name).state == "CompleteAbort", "the time-out at the new coordinator")

    move_coordinator(mixed, name, first)  # complete
    assert described(mixed, name).producer_epoch == epoch
    begin(producer, topic, "third")
    producer.commit_transaction(WAIT_S)
    begin(successor, topic, "successor")
    successor.commit_transaction(WAIT_S)
    again = confluent(mixed, name)
    assert described(mixed, name).producer_epoch == epoch + 1
    begin(again, topic, "fourth")
    again.commit_transaction(WAIT_S)
    has(mixed, topic, "first", "second", "third", "successor", "fourth")
    assert read_committed(mixed.bootstrap, topic, 2)[1] == ["elsewhere"]
    assert committed_offset(mixed.bootstrap, group, topic) == 4


@pytest.mark.parametrize(
    ("coordinator", "leader"),
    [
        pytest.param(THEIRS, OURS, marks=rotation.unless_today(0, 2)),
        pytest.param(OURS, THEIRS, marks=rotation.unless_today(1, 2)),
    ],
)
def test_a_producer_recovers_that_expects_transaction_version_2(
    mixed: MixedCluster, coordinator: int, leader: int
) -> None:
    """As one does that began while all brokers were headrace: it leaves it to the leader to add the partition."""
    topic = f"version-2-{coordinator}-{leader}"
    mixed.assign(topic, [leader])
    name = key_of(mixed, TRANSACTIONS_TOPIC, coordinator, topic)
    with Producer(mixed.bootstrap, ProducerSettings(transactional_id=name)) as producer:
        producer.init_transactions()
        transactions = producer._transactions
        assert transactions is not None and transactions.version == 0
        transactions.version = 2
        producer.begin()
        first = producer.send(topic, b"first", partition=0)
        if leader == OURS:  # it adds the partition, whoever coordinates
            producer.commit()
        else:
            assert isinstance(first.exception(), KafkaError)
            producer.abort()
        assert transactions.version == 0
        with producer.transaction():
            producer.send(topic, b"second", partition=0)
    has(mixed, topic, *(["first", "second"] if leader == OURS else ["second"]))


@BOTH
def test_the_next_coordinator_of_the_other_kind_writes_the_markers(mixed: MixedCluster, first: int) -> None:
    """The leader of one partition does nothing, so its markers cannot be written before the coordinator changes."""
    topic = f"markers-of-{first}-first"
    mixed.have_control(first)
    mixed.assign(topic, [THEIR_OTHER], [other(first)])
    names = {
        outcome: key_of(mixed, TRANSACTIONS_TOPIC, first, f"{topic}-{outcome}") for outcome in ("commits", "aborts")
    }
    producers = {outcome: confluent(mixed, name) for outcome, name in names.items()}
    for outcome, producer in producers.items():
        begin(producer, topic, outcome)
        write(producer, topic, f"{outcome} too", partition=1)
    with mixed.paused(THEIR_OTHER):
        producers["commits"].commit_transaction(WAIT_S)
        producers["aborts"].abort_transaction(WAIT_S)  # the decisions are stored
        assert described(mixed, names["commits"]).state == "PrepareCommit"
        assert described(mixed, names["aborts"]).state == "PrepareAbort"
        move_coordinator(mixed, names["commits"], other(first))
        assert described(mixed, names["commits"]).state == "PrepareCommit"
        assert described(mixed, names["aborts"]).state == "PrepareAbort"
    has(mixed, topic, "commits")
    assert read_committed(mixed.bootstrap, topic, 2)[1] == ["commits too"]
    for outcome, name in names.items():
        mixed.until(lambda name=name: described(mixed, name).state.startswith("Complete"), f"complete: {outcome}")  # type: ignore[misc]
    begin(producers["commits"], topic, "next")
    producers["commits"].commit_transaction(WAIT_S)
    has(mixed, topic, "commits", "next")


def test_kafka_transactions_lists_describes_and_aborts(mixed: MixedCluster) -> None:
    topic = "tool"
    mixed.assign(topic, [THEIRS, OURS], [OURS, THEIRS])

    def tool(*arguments: str) -> list[list[str]]:
        """The rows that the tool prints, as words."""
        return [line.split() for line in mixed.tool(TOOL, *arguments).splitlines()[1:] if line]

    names = {each: key_of(mixed, TRANSACTIONS_TOPIC, each, f"tool-{each}") for each in KINDS}
    producers = {each: confluent(mixed, name) for each, name in names.items()}
    for producer in producers.values():
        begin(producer, topic, "left")
        write(producer, topic, "right", partition=1)
    wheres = [("--topic", topic, "--partition", str(number)) for number, _ in enumerate(KINDS)]
    with ThreadPoolExecutor(2) as running:
        listing = running.submit(tool, "list")
        describing = [running.submit(tool, "describe", "--transactional-id", name) for name in names.values()]
        finding = [running.submit(tool, "describe-producers", *where) for where in wheres]
        listed = {name: (coordinator, state) for name, coordinator, _, state in listing.result()}
        for (coordinator, name), row in zip(names.items(), describing, strict=True):
            assert listed[name] == (str(coordinator), "Ongoing")
            ((found, _, _, _, state, *_, partitions),) = row.result()
            assert (found, state) == (str(coordinator), "Ongoing")
            assert set(partitions.split(",")) == {f"{topic}-0", f"{topic}-1"}
        starts = [sorted(int(row[-1]) for row in rows.result()) for rows in finding]
        assert [mixed.state(topic, number)["leader"] for number, _ in enumerate(KINDS)] == list(KINDS)
        for where, (first, _) in zip(wheres, starts, strict=True):
            running.submit(tool, "abort", *where, "--start-offset", str(first)).result()
    with Admin(mixed.bootstrap) as admin:
        left = TransactionAdmin(admin.cluster).open_transactions(TopicPartition(topic, number) for number in range(2))
    assert [each.start_offset for each in left] == [second for _, second in starts]
    assert not tool("find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
    for producer in producers.values():
        producer.abort_transaction(WAIT_S)
    assert read_committed(mixed.bootstrap, topic, 2) == {0: [], 1: []}
