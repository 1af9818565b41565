"""`headrace transaction list`, `describe`, `find-hanging` and `abort`, with a transaction that no coordinator knows."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.records.format2.batch import Record, encode_batch
from tests.asker import Asker
from tests.cli.conftest import run_headrace
from tests.client.brokers import topic_name
from tests.harness import HeadraceServer
from tests.wire import Wire

pytestmark = pytest.mark.slow  # processes of its own

LONG_AGO_MS = 1_700_000_000_000
READ_COMMITTED = 1

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    """A broker that does not verify transactions, so that one can be left hanging."""
    settings = {"transaction.partition.verification.enable": "false", "transaction.state.log.num.partitions": "2"}
    found = HeadraceServer(tmp_path_factory.mktemp("transactions") / "data", settings)
    found.start()
    yield found
    found.stop()


@pytest.fixture
def topic(server: HeadraceServer) -> str:
    name = topic_name("transactions")
    with Wire(server.bootstrap) as wire:
        wire.create_topic(name, 3)
    return name


@pytest.fixture
def transaction(server: HeadraceServer) -> Ask:
    """`headrace transaction …` with --json: its output as a value."""

    def ask(*arguments: object) -> Any:
        done = run_headrace("transaction", *map(str, arguments), "--json", bootstrap=server.bootstrap)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask


@pytest.fixture
def opened(server: HeadraceServer, topic: str) -> Iterator[tuple[str, Producer]]:
    """A producer with an open transaction in partition 1, and its id."""
    name = topic_name("open")
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": name})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1, timestamp=LONG_AGO_MS)
    producer.flush(20)
    yield name, producer
    producer.abort_transaction(20)


def leave_hanging(server: HeadraceServer, topic: str, producer_id: int, partition: int = 1) -> None:
    """Appends a batch of a transaction that no coordinator knows."""
    batch = encode_batch(
        [Record(0, LONG_AGO_MS, None, b"hanging", ())],
        producer_id=producer_id,
        producer_epoch=3,
        base_sequence=0,
        is_transactional=True,
    )
    data = m.ProduceRequest.PartitionProduceData(index=partition, records=memoryview(batch))
    request = m.ProduceRequest(
        transactional_id="nobody",
        acks=-1,
        timeout_ms=5_000,
        topic_data=[m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )
    with Asker(server.bootstrap) as asker:
        assert asker.ask(request, 11).responses[0].partition_responses[0].error_code == ErrorCode.NONE


def last_stable_offset(server: HeadraceServer, topic: str, partition: int = 1) -> int:
    asked = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=-1)
    request = m.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=READ_COMMITTED,
        topics=[m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])],
    )
    with Asker(server.bootstrap) as asker:
        offset: int = asker.ask(request, 7).topics[0].partitions[0].offset
    return offset


def test_transactional_ids_are_listed_by_each_filter(opened: tuple[str, Producer], transaction: Ask) -> None:
    name, _ = opened
    [listed] = [each for each in transaction("list") if each["transactional_id"] == name]
    assert listed["state"] == "Ongoing"

    def names(*filters: object) -> set[str]:
        return {each["transactional_id"] for each in transaction("list", *filters)}

    assert name in names("--state", "Empty", "--state", "Ongoing")
    assert name not in names("--state", "CompleteCommit")
    assert names("--producer-id", listed["producer_id"]) == {name}
    assert names("--pattern", f"{name[:-1]}.") == {name}
    assert names("--pattern", name[:-1]) == set()
    assert name in names("--longer-than", 0)
    assert name not in names("--longer-than", 3_600_000)


def test_an_unknown_state_is_refused_by_its_name(server: HeadraceServer) -> None:
    done = run_headrace("transaction", "list", "--state", "Unheard", bootstrap=server.bootstrap)
    assert done.returncode == 1
    assert b"Unheard" in done.stderr


def test_a_transaction_is_described_with_its_partitions(
    server: HeadraceServer, topic: str, opened: tuple[str, Producer], transaction: Ask
) -> None:
    name, _ = opened
    found = transaction("describe", name)
    assert (found["state"], found["partitions"], found["timeout_ms"]) == ("Ongoing", [f"{topic}-1"], 60_000)
    assert 0 <= found["open_ms"] < 60_000
    text = run_headrace("transaction", "describe", name, bootstrap=server.bootstrap).stdout.decode()
    assert f"{topic}" in text and "Ongoing" in text
    unknown = run_headrace("transaction", "describe", "nobody", bootstrap=server.bootstrap)
    assert (unknown.returncode, b"TRANSACTIONAL_ID_NOT_FOUND" in unknown.stderr) == (1, True)


def test_a_hanging_transaction_is_found_beside_an_open_one_and_aborted(
    server: HeadraceServer, topic: str, opened: tuple[str, Producer], transaction: Ask
) -> None:
    leave_hanging(server, topic, 987_654)
    [found] = transaction("find-hanging", "--topic", topic)
    assert (found["partition"], found["producer_id"], found["producer_epoch"]) == (1, 987_654, 3)
    assert (found["start_offset"], found["coordinator_epoch"]) == (1, -1)
    assert transaction("find-hanging", "--broker", 0, "--topic", topic) == [found]
    assert found in transaction("find-hanging", "--broker", 0)
    assert transaction("find-hanging", "--topic", topic, "--max-timeout", 10**15) == []
    opened[1].commit_transaction(20)
    assert last_stable_offset(server, topic) == 1
    assert transaction("abort", topic, 1, "--start-offset", 1, "--dry-run")["dry_run"] is True
    assert last_stable_offset(server, topic) == 1
    assert transaction("abort", topic, 1, "--start-offset", 1)["producer_id"] == 987_654
    assert last_stable_offset(server, topic) == 4
    assert transaction("find-hanging", "--topic", topic) == []
    again = run_headrace("transaction", "abort", topic, "1", "--start-offset", "1", bootstrap=server.bootstrap)
    assert (again.returncode, b"no open transaction that starts at offset 1" in again.stderr) == (1, True)
    opened[1].begin_transaction()


def test_a_search_without_limits_is_refused(server: HeadraceServer, topic: str) -> None:
    for arguments, code, text in (
        ((), 2, b"--broker or --topic"),
        (("--broker", "77"), 1, b"broker 77"),
        (("--topic", "nowhere"), 1, b"nowhere"),
    ):
        done = run_headrace("transaction", "find-hanging", *arguments, bootstrap=server.bootstrap)
        assert (done.returncode, text in done.stderr) == (code, True), done.stderr
