"""A broker killed between the record of a decision and the markers finishes the transaction at its next start."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.client.core.cluster import Cluster
from headrace.client.operations.transaction_admin import TransactionAdmin, TransactionDescription
from headrace.coordinators.transactions.records import write_key, write_value
from headrace.coordinators.transactions.transaction import Transaction, TransactionState
from headrace.records.format2.batch import Record, encode_batch, read_header
from headrace.records.format2.header import set_base_offset
from headrace.types import TopicPartition
from tests.cli.test_transaction import last_stable_offset
from tests.conftest import StartHeadrace
from tests.eventually import WITHIN_SECONDS, eventually
from tests.wire import Wire

pytestmark = pytest.mark.slow  # a broker that starts twice


def append_to_file(file: Path, records: list[Record]) -> None:
    """Adds a batch at the end of a segment, whose broker does not run."""
    data = file.read_bytes()
    position, offset = 0, 0
    while position < len(data):
        header = read_header(memoryview(data)[position:])
        position, offset = position + header.size_bytes, header.next_offset
    batch = encode_batch(records)
    set_base_offset(batch, offset, 0)
    with file.open("ab") as log:
        log.write(batch)


@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
def test_a_restart_after_kill_9_writes_the_markers_of_a_decided_transaction(
    headrace_server: StartHeadrace, state: TransactionState
) -> None:
    server = headrace_server(settings={"transaction.state.log.num.partitions": "1"})
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("t", 2) == 0
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "x"})
    producer.init_transactions(WITHIN_SECONDS)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("t", b"decided", partition=partition)
    assert producer.flush(WITHIN_SECONDS) == 0

    def described() -> TransactionDescription:
        with Cluster(server.bootstrap) as cluster:
            return TransactionAdmin(cluster).describe_transaction("x")

    ongoing = described()
    assert (ongoing.state, last_stable_offset(server, "t")) == ("Ongoing", 0)
    server.kill()
    now_ms = time.time_ns() // 1_000_000
    gone = {TopicPartition("t", 7), TopicPartition("never", 0)}
    decided = Transaction(
        "x",
        ongoing.producer_id,
        ongoing.timeout_ms,
        now_ms,
        ongoing.producer_epoch + 1,
        state,
        frozenset({*ongoing.partitions, *gone}),
        ongoing.started_ms,
        ongoing.producer_id,
        version=2,
    )
    (segment,) = server.data.glob("__transaction_state-0/*.log")
    append_to_file(segment, [Record(0, now_ms, write_key("x"), write_value(decided))])
    server.restart()
    is_commit = state is TransactionState.PREPARE_COMMIT
    eventually(
        lambda: described().state == ("CompleteCommit" if is_commit else "CompleteAbort"),
        "the transaction to be finished",
    )
    assert [last_stable_offset(server, "t", partition) for partition in (0, 1)] == [2, 2]
    assert described().producer_epoch == ongoing.producer_epoch + 1
