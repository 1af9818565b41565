"""Exactly once with transactions: each task prepares one, the driver commits all of them.

    task     init_transactions ─▶ batch committed already? ─▶ rows, and BATCH in the task's group ─▶ prepared, open
    driver   stores its decision: batch, and every prepared transaction ─▶ commits each of them

The transactional id `headrace-sink-WRITE-TASK` fences: a task that begins aborts what earlier attempts left open, and
none of them can commit any more. Whether a task committed a batch is known from the batch's number, which its
transaction commits in the task's group with the rows. So no task commits a batch twice.

When the driver dies                  the batch done again
    before its decision               aborts the open transactions and writes everything
    after it, even between commits    writes nothing; the driver commits the transactions that are still open. Other
                                      rows or tasks than the first time do no harm
    after it, for longer than the     fails once, as the coordinator has aborted some transactions. Then their tasks
    transactions' time-out            write again, and the others write nothing

Guaranteed: no row of a batch is lost and none is there twice, for read_committed readers, whatever dies. In the last
case alone this needs what the idempotent mode always needs: tasks with the same rows. Another number of tasks, and
another number of rows in one of them, is detected and is an error. Not guaranteed:

  - the tasks of a batch become visible within moments of each other, but not at once
  - transactions hold read_committed readers of the topic back until they end, or time out
  - a broker that forgets offsets (offsets.retention.minutes, 7 days) before the batch is done again

Source: the two phases are those of Flink's KafkaSink, which keeps its decision in its own checkpoint.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from headrace.client.core.cluster import Cluster
from headrace.client.operations.transaction_admin import TransactionAdmin, TransactionFilter
from headrace.client.producer.prepared import NOT_OPEN, PreparedTransaction, end_all_prepared
from headrace.client.producer.producer import Producer
from headrace.errors import ErrorCode, KafkaError
from headrace.spark.sink.sink_groups import Decision, SinkGroups, metadata_of
from headrace.spark.sink.sink_marks import Mark
from headrace.spark.sink.sink_options import SinkOptions
from headrace.spark.sink.sink_rows import TaskRows
from headrace.spark.source.cluster_access import client_settings

_log = logging.getLogger(__name__)


class BatchNotCommitted(KafkaError):
    """A batch, or a part of it, is not committed; the message says what to do."""

    code = ErrorCode.INVALID_TXN_STATE


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    """The result of a task. `prepared` is None if the task wrote nothing, for one of two reasons."""

    mark: Mark
    run: str
    prepared: PreparedTransaction | None = None
    is_decided: bool = False
    """There is a decision about the batch already. Otherwise the task has committed the batch in an earlier run."""


def write_transaction(options: SinkOptions, mark: Mark, run: str, batches: Iterator[pa.RecordBatch]) -> TaskTransaction:
    """Write the rows of one task, and leave their transaction open for the driver. Raises KafkaError."""
    with _cluster(options) as cluster:
        groups = SinkGroups(cluster, options.place, mark.write)
        decision = groups.decision(with_prepared=False)
        _refuse_older(mark, decision)
        if decision is not None and decision.batch == mark.batch and decision.is_final:
            return TaskTransaction(mark, run, is_decided=True)
        with _producer(options, mark.transactional_id) as producer:
            producer.init_transactions()
            committed = groups.rows_committed(mark)
            if committed is not None:
                _check_same_rows(mark, committed, sum(batch.num_rows for batch in batches))
                return TaskTransaction(mark, run)
            producer.begin()
            try:
                task = TaskRows(options, mark, cluster, producer)
                for batch in batches:
                    task.add(batch)
                task.finish()
                if options.topic is not None:
                    producer.partitions(options.topic)  # creates it, if no row has done so
                producer.send_offsets({options.place: mark.batch}, mark.group_id, metadata=metadata_of(task.rows))
                return TaskTransaction(mark, run, producer.prepare_transaction())
            except BaseException:
                with suppress(KafkaError):  # the first error says more; what stays open is aborted by the next attempt
                    producer.abort()
                raise


def commit_batch(options: SinkOptions, tasks: Sequence[TaskTransaction]) -> None:
    """Commit the transactions of all tasks of a batch; done again, it continues. Raises BatchNotCommitted."""
    if not tasks:
        return
    mark = tasks[0].mark
    with _cluster(options) as cluster:
        groups = SinkGroups(cluster, options.place, mark.write)
        before = groups.decision()
        decision = before if before is not None and before.batch == mark.batch and before.is_final else None
        if decision is None:
            try:
                _refuse_older(mark, before)
                _check_same_tasks(mark, before, tasks)
            except BatchNotCommitted:
                end_all_prepared(cluster, _prepared(tasks), is_commit=False)
                raise
            prepared = {task.mark.task: task.prepared for task in tasks if task.prepared is not None}
            decision = Decision(mark.batch, tasks[0].run, len(tasks), is_final=True, prepared=prepared)
            groups.decide(decision)
        else:  # transactions of tasks that began before another driver decided
            stray = [one for one in _prepared(tasks) if one not in decision.prepared.values()]
            end_all_prepared(cluster, stray, is_commit=False)
        _execute(options, cluster, groups, mark, decision)
        if before is None or before.run != tasks[0].run:
            _abort_leftovers(options, cluster, mark, len(tasks))


def abort_batch(options: SinkOptions, tasks: Sequence[TaskTransaction], write_id: str | None = None) -> None:
    """Abort the transactions of a failed batch, as far as possible, unless it is decided to commit them.

    With `write_id`, those of tasks without a result too: the batch may never be done again, which would abort them. A
    task that Spark killed has no result, though it may have written.
    """
    prepared = _prepared(tasks)
    mark = tasks[0].mark if tasks else Mark(write_id or "", 0, 0)
    if not mark.write:
        return
    with suppress(KafkaError), _cluster(options) as cluster:  # what stays open is aborted by the batch's next run
        decision = SinkGroups(cluster, options.place, mark.write).decision()
        is_decided = decision is not None and decision.batch == mark.batch and decision.is_final
        if is_decided and decision is not None:
            prepared = [one for one in prepared if one not in decision.prepared.values()]
        end_all_prepared(cluster, prepared, is_commit=False)
        if write_id is not None and not is_decided:
            for _, transactional_id in _listed_tasks(cluster, mark, ("Empty", "Ongoing")):
                _abort_open(options, transactional_id)  # fences a task that has not written yet, too


def _execute(options: SinkOptions, cluster: Cluster, groups: SinkGroups, mark: Mark, decision: Decision) -> None:
    """Commit the transactions of a final decision. Withdraws it if some were lost."""
    tasks = {prepared: task for task, prepared in decision.prepared.items()}
    failed = end_all_prepared(cluster, list(tasks), is_commit=True)
    lost: dict[int, KafkaError] = {}
    for prepared, error in failed.items():
        if error.code not in NOT_OPEN:
            raise BatchNotCommitted(
                f"batch {mark.batch}: the coordinator of {prepared.transactional_id} did not commit it in time; the "
                f"decision is stored: restart the query, which continues the commit ({error})"
            ) from error
        # A later producer may have taken over after an earlier commit, of which the response was lost. Ours ends what
        # that producer has open; otherwise the group would not answer before it ends.
        _abort_open(options, prepared.transactional_id)
        if groups.rows_committed(mark._replace(task=tasks[prepared])) is None:
            lost[tasks[prepared]] = error
    if not lost:
        return
    some = len(lost) < decision.tasks
    groups.decide(Decision(mark.batch, decision.run, decision.tasks if some else 0, is_final=False))
    error = next(iter(lost.values()))
    raise BatchNotCommitted(
        f"batch {mark.batch}: the transactions of tasks {_listed(lost)} of {decision.tasks} were aborted before the "
        "driver committed them: they timed out, or another attempt of the task began (speculation, or another driver "
        "of this query). Restart the query: these tasks write the batch again. If batches take long, raise "
        f"kafka.transaction.timeout.ms, and transaction.max.timeout.ms of the brokers ({error})"
    )


def _refuse_older(mark: Mark, decision: Decision | None) -> None:
    if decision is not None and decision.batch > mark.batch:
        raise BatchNotCommitted(
            f"batch {mark.batch} is older than batch {decision.batch}, which is committed: another driver of this "
            "query is running, or its checkpoint was set back. To write older batches again, delete the group "
            f"headrace-sink-{mark.write}-driver"
        )


def _check_same_tasks(mark: Mark, decision: Decision | None, tasks: Sequence[TaskTransaction]) -> None:
    if any(task.is_decided for task in tasks):
        raise BatchNotCommitted(
            f"batch {mark.batch}: the decision about it changed while its tasks ran, so another driver of this query "
            "is running. End one of them, and restart the query"
        )
    if decision is not None and decision.batch == mark.batch and decision.tasks not in (0, len(tasks)):
        raise BatchNotCommitted(
            f"batch {mark.batch} has {len(tasks)} tasks, but some of the {decision.tasks} tasks of its first run are "
            "committed, so nothing of this run is. Restart the query with settings that give it "
            f"{decision.tasks} tasks again"
        )


def _check_same_rows(mark: Mark, committed: int, found: int) -> None:
    if committed != found:
        raise BatchNotCommitted(
            f"batch {mark.batch}: task {mark.task} has {found} rows, but its first run committed {committed}, so the "
            "rows are distributed in another way. Restart the query with the settings of the first run"
        )


def _abort_leftovers(options: SinkOptions, cluster: Cluster, mark: Mark, tasks: int) -> None:
    """Abort open transactions of earlier runs with more tasks. Nobody else would, and they hold readers back."""
    try:
        for task, transactional_id in _listed_tasks(cluster, mark, ("Ongoing",)):
            if task >= tasks:
                _abort_open(options, transactional_id)
    except KafkaError as error:  # the batch is committed; they will time out
        _log.warning("open transactions of earlier runs could not be aborted: %s", error)


def _listed_tasks(cluster: Cluster, mark: Mark, states: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The tasks of a write whose transactions are in one of `states`, with their transactional ids."""
    prefix = Mark(mark.write, 0, 0).transactional_id.removesuffix("0")
    for listed in TransactionAdmin(cluster).list_transactions(TransactionFilter(states=tuple(states))):
        number = listed.transactional_id.removeprefix(prefix)
        if listed.transactional_id.startswith(prefix) and number.isdecimal():
            yield int(number), listed.transactional_id


def _abort_open(options: SinkOptions, transactional_id: str) -> None:
    with _producer(options, transactional_id) as producer:
        producer.init_transactions()


def _cluster(options: SinkOptions) -> Cluster:
    return Cluster(options.bootstrap_servers, client_settings(options.client_settings))


def _producer(options: SinkOptions, transactional_id: str) -> Producer:
    settings = options.producer.replace(transactional_id=transactional_id)
    return Producer(options.bootstrap_servers, settings, client_settings(options.client_settings))


def _prepared(tasks: Sequence[TaskTransaction]) -> list[PreparedTransaction]:
    return [task.prepared for task in tasks if task.prepared is not None]


def _listed(tasks: dict[int, KafkaError]) -> str:
    return ", ".join(map(str, sorted(tasks)))
