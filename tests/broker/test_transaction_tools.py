"""Apache Kafka's kafka-transactions and DumpLogSegments over the transactions of a broker of ours."""

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.records.format2.batch import Record, encode_batch
from tests.asker import Asker
from tests.conftest import StartHeadrace
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import HeadraceServer
from tests.peers import kafka
from tests.peers.kafka_tools import Tools, kafka_tools
from tests.wire import Wire

pytestmark = pytest.mark.slow  # processes of its own

SETTINGS = {
    **kafka.SHARED_SETTINGS,
    "transaction.state.log.num.partitions": "1",
    "transaction.partition.verification.enable": "false",  # so that a transaction can hang
}
TOOL = "org.apache.kafka.tools.TransactionsCommand"
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
LAST_PRODUCE_WITHOUT_ADDING = 11


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.xdist_group("java-programs")
def test_kafkas_tools_list_describe_find_abort_and_decode_transactions(
    headrace_server: StartHeadrace, tmp_path: Path
) -> None:
    if reason := kafka.missing_tools():
        pytest.skip(reason)
    with kafka_tools(tmp_path) as tools:
        list_describe_find_abort_and_decode(headrace_server(settings=SETTINGS), tools)


def list_describe_find_abort_and_decode(server: HeadraceServer, tools: Tools) -> None:
    def tool(*arguments: str) -> list[list[str]]:
        """The rows that a command prints, as words."""
        output = tools.check(TOOL, "--bootstrap-server", server.bootstrap, *arguments)
        return [line.split() for line in output.splitlines()[1:] if line]

    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("t", partitions=2) == 0
    ended, ongoing = transaction(server.bootstrap, "ended"), transaction(server.bootstrap, "ongoing")
    ended.commit_transaction(WITHIN_SECONDS)
    hang(server.bootstrap)

    assert {(name, coordinator, state) for name, coordinator, _, state in tool("list")} == {
        ("ended", "0", "CompleteCommit"),
        ("hanging", "0", "Empty"),
        ("ongoing", "0", "Ongoing"),
    }
    ((coordinator, name, _, _, state, *_, partitions),) = tool("describe", "--transactional-id", "ongoing")
    assert (coordinator, name, state, partitions) == ("0", "ongoing", "Ongoing", "t-0")
    ((topic, partition, *_, start, _, _),) = tool("find-hanging", "--broker-id", "0", "--max-transaction-timeout", "0")
    assert (topic, partition, start) == ("t", "1", "0")
    tool("abort", "--topic", "t", "--partition", "1", "--start-offset", start)
    producers = tool("describe-producers", "--topic", "t", "--partition", "1")
    assert [row[-1] for row in producers] == ["None"]
    ongoing.abort_transaction(WITHIN_SECONDS)
    eventually(
        lambda: ["ongoing", "CompleteAbort"] in [[row[0], row[3]] for row in tool("list")], "the end of the abort"
    )

    assert server.stop() == 0
    decoded = decode(server.data / "__transaction_state-0", tools)
    states = [state for name, state in decoded if name == "ongoing"]
    assert states == ["Empty", "Ongoing", "PrepareAbort", "CompleteAbort"]
    assert [state for name, state in decoded if name == "ended"][-2:] == ["PrepareCommit", "CompleteCommit"]


def transaction(bootstrap: str, name: str) -> Producer:
    """A producer with an open transaction that has one record in partition 0."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(WITHIN_SECONDS)
    producer.begin_transaction()
    producer.produce("t", b"value", partition=0)
    assert producer.flush(WITHIN_SECONDS) == 0
    return producer


def hang(bootstrap: str) -> None:
    """Append a record of a transaction of which its coordinator does not know."""
    with Asker(bootstrap) as asker:
        init = m.InitProducerIdRequest(transactional_id="hanging", transaction_timeout_ms=1_000)
        identity = asker.ask(init, 4)
        assert identity.error_code == ErrorCode.NONE
        batch = encode_batch(
            [Record(0, 1_700_000_000_000, None, b"value", ())],
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        partition = m.ProduceRequest.PartitionProduceData(index=1, records=bytes(batch))
        topic = m.ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
        request = m.ProduceRequest(transactional_id="hanging", acks=-1, timeout_ms=1_000, topic_data=[topic])
        answer = asker.ask(request, LAST_PRODUCE_WITHOUT_ADDING)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def decode(directory: Path, tools: Tools) -> list[tuple[str, str]]:
    """Transactional id and state of each record, as Kafka's decoder reads them."""
    (file,) = directory.glob("*.log")
    output = tools.check("org.apache.kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", str(file))
    pairs = (
        (json.loads(key)["data"], json.loads(value)["data"])
        for key, value in re.findall(r"key: (\{.*\}) payload: (\{.*\})$", output, re.MULTILINE)
    )
    return [(key["transactionalId"], STATES[value["transactionStatus"]]) for key, value in pairs]
