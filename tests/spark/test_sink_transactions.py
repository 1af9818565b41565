"""The transactional sink: the work of tasks and of the driver by themselves. `test_transactional_sink` runs Spark."""

import uuid
from collections import Counter
from collections.abc import Iterator

import pytest

from headrace.client.consumer.consumer import Consumer, ConsumerSettings
from headrace.client.consumer.fetching import READ_COMMITTED
from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import LATEST, Admin
from headrace.client.operations.group_admin import GroupAdmin
from headrace.client.operations.transaction_admin import TransactionAdmin
from headrace.client.producer.prepared import NOT_OPEN, PreparedTransaction, end_prepared
from headrace.client.producer.producer import Producer, ProducerSettings
from headrace.errors import KafkaError
from headrace.spark.option_values import OptionError
from headrace.spark.sink import sink_transactions
from headrace.spark.sink.sink_errors import SinkGroupError
from headrace.spark.sink.sink_groups import Decision, SinkGroups
from headrace.spark.sink.sink_marks import Mark
from headrace.spark.sink.sink_options import SinkOptions
from headrace.spark.sink.sink_transactions import (
    BatchNotCommitted,
    TaskTransaction,
    abort_batch,
    commit_batch,
    write_transaction,
)
from headrace.types import TopicPartition
from tests.eventually import eventually, eventually_equal
from tests.spark.test_sink import contents, new_topic, options, rows

pytestmark = pytest.mark.slow  # transactions that time out


@pytest.fixture(params=["headrace", pytest.param("apache-kafka", marks=[pytest.mark.peer, pytest.mark.slow])])
def server(request: pytest.FixtureRequest) -> str:
    """The address of a broker of headrace, and of Apache Kafka."""
    address: str = request.getfixturevalue("broker" if request.param == "headrace" else "apache_kafka")
    return address


@pytest.fixture
def topic(server: str) -> str:
    """An empty topic of two partitions."""
    return new_topic(server, f"transactional-{uuid.uuid4()}")


@pytest.fixture
def cluster(server: str) -> Iterator[Cluster]:
    with Cluster(server) as opened:
        yield opened


def transactional(server: str, topic: str | None, **more: str) -> SinkOptions:
    return options(server, topic, transactional="true", **more)


def committed(server: str, topic: str) -> Counter[bytes]:
    """The values that a read_committed reader sees now."""
    found: Counter[bytes] = Counter()
    partitions = [TopicPartition(topic, number) for number in (0, 1)]
    with Consumer(server, ConsumerSettings(isolation_level="read_committed")) as consumer, Admin(server) as admin:
        ends = admin.list_offsets(dict.fromkeys(partitions, LATEST), isolation_level=READ_COMMITTED)
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)

        def is_at_the_end() -> bool:
            found.update(record.value or b"" for record in consumer.poll(50))
            return all(consumer.position(each) >= ends[each].offset for each in partitions)

        eventually(is_at_the_end, "the last stable offsets", every_s=0)
    return found


class Query:
    """Batches of a query, with the rows `BATCH-TASK-NUMBER`, from tasks that run one after the other."""

    def __init__(self, server: str, topic: str, **more: str) -> None:
        self.options = transactional(server, topic, **more)
        self.write = uuid.uuid4().hex

    def mark(self, batch: int, task: int) -> Mark:
        return Mark(self.write, batch, task)

    def task(self, batch: int, task: int, run: str = "first", count: int = 3) -> TaskTransaction:
        values = [b"%d-%d-%d" % (batch, task, number) for number in range(count)]
        return write_transaction(self.options, self.mark(batch, task), run, iter([rows(*values)]))

    def tasks(self, batch: int, tasks: int = 2, run: str = "first") -> list[TaskTransaction]:
        return [self.task(batch, task, run) for task in range(tasks)]

    @staticmethod
    def expected(*batches: int, tasks: int = 2, count: int = 3) -> Counter[bytes]:
        return Counter(
            b"%d-%d-%d" % (batch, task, number) for batch in batches for task in range(tasks) for number in range(count)
        )


class Killed(BaseException):
    """The driver dies."""


def commit_and_die_after(
    monkeypatch: pytest.MonkeyPatch, query: Query, tasks: list[TaskTransaction], ends: int
) -> None:
    """The driver dies after it has ended `ends` transactions."""

    def die(cluster: Cluster, prepared: list[PreparedTransaction], *, is_commit: bool) -> dict[object, object]:
        for one in prepared[:ends]:
            end_prepared(cluster, one, is_commit=is_commit)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(sink_transactions, "end_all_prepared", die)
        commit_batch(query.options, tasks)


def test_rows_are_seen_once_the_driver_has_committed(server: str, topic: str) -> None:
    query = Query(server, topic)
    for batch in range(3):
        tasks = query.tasks(batch)
        assert committed(server, topic) == query.expected(*range(batch))
        commit_batch(query.options, tasks)
        eventually_equal(lambda: committed(server, topic), query.expected(*range(batch + 1)))
    assert all(headers == [] for *_, headers in contents(server, topic))


def test_an_aborted_batch_is_not_seen_and_can_be_done_again(server: str, topic: str) -> None:
    query = Query(server, topic)
    abort_batch(query.options, query.tasks(0))
    assert committed(server, topic) == Counter()
    commit_batch(query.options, query.tasks(0))
    eventually_equal(lambda: committed(server, topic), query.expected(0))
    abort_batch(query.options, query.tasks(0))  # what Spark does if it fails after the commit: nothing is undone
    commit_batch(query.options, query.tasks(1))
    eventually_equal(lambda: committed(server, topic), query.expected(0, 1))


@pytest.mark.parametrize("results", [0, 1])
def test_a_failed_write_aborts_the_transactions_of_tasks_without_a_result(
    server: str, topic: str, results: int
) -> None:
    query, after = Query(server, topic), Query(server, topic)
    abort_batch(query.options, query.tasks(0)[:results], query.write)
    commit_batch(after.options, after.tasks(0))
    eventually_equal(lambda: committed(server, topic), after.expected(0))  # nothing holds the readers back


def test_an_earlier_attempt_of_a_task_is_fenced(server: str, topic: str, cluster: Cluster) -> None:
    query = Query(server, topic)

    def while_another_attempt_runs() -> Iterator[object]:
        yield rows(b"zombie")
        commit_batch(query.options, [query.task(0, 0)])
        yield rows(b"zombie, still alive")

    with pytest.raises(KafkaError) as fenced:
        write_transaction(query.options, query.mark(0, 0), "first", while_another_attempt_runs())
    assert fenced.value.code in NOT_OPEN
    eventually_equal(lambda: committed(server, topic), query.expected(0, tasks=1))


def test_a_finished_attempt_is_fenced_too_and_the_batch_is_done_again(server: str, topic: str) -> None:
    query = Query(server, topic)
    first = query.tasks(0)
    query.task(0, 1)  # a speculative copy begins after task 1 has ended
    with pytest.raises(BatchNotCommitted, match=r"the transactions of tasks 1 of 2 .*speculation.*Restart the query"):
        commit_batch(query.options, first)
    abort_batch(query.options, first)
    eventually_equal(lambda: committed(server, topic), query.expected(0, tasks=1))
    again = query.tasks(0, run="second")
    assert again[0].prepared is None  # task 0 had committed
    commit_batch(query.options, again)
    eventually_equal(lambda: committed(server, topic), query.expected(0))


@pytest.mark.parametrize("ends", [0, 1, 2])
def test_a_decided_batch_is_committed_by_the_next_driver_whatever_its_tasks_have(
    server: str, topic: str, ends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(server, topic)
    commit_and_die_after(monkeypatch, query, query.tasks(0), ends)
    again = [query.task(0, task, "second", count=7) for task in range(3)]  # other tasks, other rows
    assert all(task.prepared is None for task in again)
    commit_batch(query.options, again)
    commit_batch(query.options, again)
    eventually_equal(lambda: committed(server, topic), query.expected(0))
    commit_batch(query.options, query.tasks(1, run="second"))
    eventually_equal(lambda: committed(server, topic), query.expected(0, 1))


def test_a_driver_that_dies_before_its_decision_leaves_nothing(server: str, topic: str) -> None:
    query = Query(server, topic)
    query.tasks(0, tasks=4)
    commit_batch(query.options, query.tasks(0, run="second"))
    # Transactions of tasks 2 and 3, which do not run any more, would hold the reader back.
    eventually_equal(lambda: committed(server, topic), query.expected(0))


def test_tasks_lost_after_the_decision_write_again(
    server: str, topic: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(server, topic)
    commit_and_die_after(monkeypatch, query, tasks := query.tasks(0, 3), ends=1)
    assert tasks[2].prepared is not None
    end_prepared(cluster, tasks[2].prepared, is_commit=False)  # as its time-out does
    with pytest.raises(BatchNotCommitted, match="the transactions of tasks 2 of 3 were aborted"):
        commit_batch(query.options, query.tasks(0, 3, "second"))
    with pytest.raises(BatchNotCommitted, match="has 2 tasks, but some of the 3 tasks of its first run are committed"):
        commit_batch(query.options, query.tasks(0, 2, "third"))
    with pytest.raises(BatchNotCommitted, match="task 0 has 9 rows, but its first run committed 3"):
        query.task(0, 0, "fourth", count=9)
    commit_batch(query.options, query.tasks(0, 3, "fourth"))
    eventually_equal(lambda: committed(server, topic), query.expected(0, tasks=3))


def test_a_commit_whose_response_was_lost_counts(
    server: str, topic: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(server, topic)
    commit_and_die_after(monkeypatch, query, tasks := query.tasks(0), ends=1)
    assert tasks[0].prepared is not None
    with Producer(server, ProducerSettings(transactional_id=tasks[0].prepared.transactional_id)) as zombie:
        zombie.init_transactions()  # fences the committed transaction
        zombie.begin()
        zombie.send_offsets({query.options.place: 0}, query.mark(0, 0).group_id, metadata="rows 3")
        commit_batch(query.options, query.tasks(0, run="second"))
        with pytest.raises(KafkaError):
            zombie.commit()
    eventually_equal(lambda: committed(server, topic), query.expected(0))


def test_transactions_that_time_out_fail_the_batch(server: str, topic: str, cluster: Cluster) -> None:
    query = Query(server, topic, **{"kafka.transaction.timeout.ms": "500"})
    tasks = query.tasks(0)
    ids = [task.prepared.transactional_id for task in tasks if task.prepared is not None]
    admin = TransactionAdmin(cluster)
    eventually_equal(lambda: {admin.describe_transaction(each).state for each in ids}, {"CompleteAbort"})
    with pytest.raises(BatchNotCommitted, match=r"tasks 0, 1 of 2 .*they timed out.*kafka.transaction.timeout.ms"):
        commit_batch(query.options, tasks)
    # Nothing was committed, so the batch may have other tasks.
    longer = Query(server, topic)
    longer.write = query.write
    commit_batch(longer.options, longer.tasks(0, 3, "second"))
    eventually_equal(lambda: committed(server, topic), query.expected(0, tasks=3))


def test_a_second_driver_is_refused(server: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(server, topic)
    stale = query.tasks(0)
    commit_batch(query.options, query.tasks(0, run="second"))
    commit_batch(query.options, query.tasks(1, run="second"))
    with pytest.raises(BatchNotCommitted, match="batch 0 is older than batch 1"):
        commit_batch(query.options, stale)
    with pytest.raises(BatchNotCommitted, match="batch 0 is older than batch 1"):
        query.task(0, 0)
    # The tasks of a driver see a decision, which another driver withdraws.
    commit_and_die_after(monkeypatch, query, query.tasks(2), ends=0)
    skipped = query.tasks(2, run="second")
    with Cluster(server) as cluster:
        withdrawn = Decision(2, "other", 0, is_final=False)
        SinkGroups(cluster, query.options.place, query.write).decide(withdrawn)
    with pytest.raises(BatchNotCommitted, match="the decision about it changed"):
        commit_batch(query.options, skipped)
    assert committed(server, topic) == query.expected(0, 1)


def test_the_topic_may_be_a_column_and_a_task_empty(server: str, topic: str) -> None:
    other = new_topic(server, f"{topic}-other")
    chosen = options(server, schema="value binary, topic string", transactional="true")
    write = uuid.uuid4().hex
    full = write_transaction(chosen, Mark(write, 0, 0), "run", iter([rows(b"1", b"2", topic=[topic, other])]))
    empty = write_transaction(chosen, Mark(write, 0, 1), "run", iter([]))
    commit_batch(chosen, [full, empty])
    eventually_equal(lambda: committed(server, topic), Counter([b"1"]))
    eventually_equal(lambda: committed(server, other), Counter([b"2"]))
    assert write_transaction(chosen, Mark(write, 0, 0), "again", iter([])).is_decided


def test_what_the_idempotent_mode_notes_in_the_same_group_is_no_committed_batch(server: str, topic: str) -> None:
    query = Query(server, topic)
    with Cluster(server) as cluster:
        groups = SinkGroups(cluster, query.options.place, query.write)
        groups._groups.commit(query.mark(4, 0).group_id, {query.options.place: 4}, metadata="4")
        assert groups.rows_committed(query.mark(4, 0)) is None


def test_a_decision_may_be_longer_than_the_metadata_of_one_offset(server: str, topic: str, cluster: Cluster) -> None:
    write = uuid.uuid4().hex
    groups = SinkGroups(cluster, TopicPartition(topic, 0), write)
    assert groups.decision() is None
    prepared = {
        task: PreparedTransaction(Mark(write, 7, task).transactional_id, 1 << 40 | task, task % 32768, 2)
        for task in range(1000)
    }
    stored = Decision(7, uuid.uuid4().hex, 1000, is_final=True, prepared=prepared)
    groups.decide(stored)
    assert groups.decision() == stored
    head = groups.decision(with_prepared=False)
    assert head is not None
    assert (head.batch, head.is_final, head.prepared) == (7, True, {})
    shorter = Decision(8, stored.run, 1, is_final=True, prepared={0: prepared[0]})
    groups.decide(shorter)
    assert groups.decision() == shorter


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"idempotent": "true"}, "idempotent = 'true': is the other mode"),
        ({"kafka.acks": "1"}, "kafka.acks = '1': transactions need all"),
        ({"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence = 'false': transactions need it"),
        ({"kafka.transactional.id": "mine"}, "each task has its own"),
        ({"transactional": "false", "kafka.transaction.timeout.ms": "5"}, "set transactional=true, or remove it"),
    ],
)
def test_options_that_contradict_transactions_are_refused(more: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as refused:
        options("b:1", "t", **{"transactional": "true", **more})
    assert says in str(refused.value)


def test_a_timeout_that_the_brokers_do_not_allow_says_so(server: str, topic: str) -> None:
    query = Query(server, topic, **{"kafka.transaction.timeout.ms": "900001"})
    with pytest.raises(KafkaError, match="longer than transaction.max.timeout.ms of the brokers"):
        query.task(0, 0)


def test_topics_that_do_not_exist_are_created_also_by_empty_tasks(broker: str) -> None:
    query = Query(broker, f"created-{uuid.uuid4()}")
    with Admin(broker) as admin:
        before = {topic.name for topic in admin.list_topics()}
        commit_batch(query.options, [query.task(0, 0, count=0)])
        assert {topic.name for topic in admin.list_topics()} - before >= {query.options.topic}


@pytest.mark.parametrize("metadata", ["", "{}", "[]", "no JSON", '{"prepared": "1.x", "parts": 1}'])
def test_a_decision_that_the_sink_did_not_write_is_named(cluster: Cluster, topic: str, metadata: str) -> None:
    write, place = uuid.uuid4().hex, TopicPartition(topic, 0)
    GroupAdmin(cluster).commit(f"headrace-sink-{write}-driver", {place: 7}, metadata)
    with pytest.raises(SinkGroupError, match=f"group headrace-sink-{write}-driver has the metadata .*group delete"):
        SinkGroups(cluster, place, write).decision()
