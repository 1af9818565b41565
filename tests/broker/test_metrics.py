"""The metrics' endpoint, read as Prometheus reads it: what was done shows in the numbers."""

import re
import socket
import time
import uuid
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.admin_requests import create_topic
from tests.broker.quota_requests import Client, set_quota
from tests.broker.test_group_apis import SETTINGS as GROUP_SETTINGS
from tests.broker.test_group_apis import a_topic, commit
from tests.broker.test_quotas import produce
from tests.conftest import StartHeadrace
from tests.eventually import eventually, eventually_equal
from tests.harness import HeadraceServer, free_ports, receive_frame, tail
from tests.wire import FETCH, Wire, batch, produce_request

pytestmark = pytest.mark.slow  # processes of its own

Metrics = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scraper:
    """Asks one broker's endpoint."""

    def __init__(self, server: HeadraceServer, port: int) -> None:
        self.server, self.port = server, port

    def get(self, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, str, str]:
        """Status, content type and body."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=15)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, answer.getheader("Content-Type", ""), body

    def scrape(self) -> Metrics:
        """Every sample."""
        families = text_string_to_metric_families(self.get()[2])
        found = [
            (sample.name, frozenset(sample.labels.items()), sample.value) for f in families for sample in f.samples
        ]
        samples = {(name, labels): value for name, labels, value in found}
        assert len(samples) == len(found)
        return samples


@pytest.fixture
def scraper(headrace_server: StartHeadrace) -> Scraper:
    (port,) = free_ports(1)
    server = headrace_server(settings=GROUP_SETTINGS | {"headrace.metrics.listen": f"127.0.0.1:{port}"})
    return Scraper(server, port)


@pytest.fixture
def wire(scraper: Scraper) -> Iterator[Wire]:
    with Wire(scraper.server.bootstrap) as connection:
        yield connection


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics[name, frozenset(labels.items())]


TRAFFIC = "kafka_server_brokertopicmetrics"
REQUESTS = "kafka_network_requestmetrics"
GROUPS = "kafka_server_group_coordinator_metrics"


def test_traffic_is_counted_by_topic_and_altogether(scraper: Scraper, wire: Wire) -> None:
    sent = batch([b"one", b"two"])
    for topic in ("first", "second"):
        assert wire.create_topic(topic) == 0
        wire.produce(topic, sent)
    wire.produce("first", sent)
    assert wire.fetch("first", 0).records
    metrics = scraper.scrape()
    for labels, records, size in (({"topic": "first"}, 4, 2), ({"topic": "second"}, 2, 1), ({}, 6, 3)):
        assert value(metrics, f"{TRAFFIC}_messagesin_total", **labels) == records
        assert value(metrics, f"{TRAFFIC}_bytesin_total", **labels) == size * len(sent)
        assert value(metrics, f"{TRAFFIC}_totalproducerequests_total", **labels) == size
    assert value(metrics, f"{TRAFFIC}_bytesout_total", topic="first") == 2 * len(sent)
    assert value(metrics, f"{TRAFFIC}_bytesout_total", topic="second") == 0
    assert value(metrics, "kafka_log_log_size", topic="first", partition="0") == 2 * len(sent)
    assert value(metrics, "kafka_log_log_logendoffset", topic="first", partition="0") == 4


def test_a_topic_that_is_gone_stays_in_the_totals(scraper: Scraper, wire: Wire) -> None:
    wire.create_topic("gone")
    wire.produce("gone", batch([b"one"]))
    assert value(scraper.scrape(), f"{TRAFFIC}_messagesin_total", topic="gone") == 1
    wire.ask(20, 1, b"\0\0\0\1\0\4gone" + (1000).to_bytes(4, "big"))
    metrics = scraper.scrape()
    assert value(metrics, f"{TRAFFIC}_messagesin_total") == 1
    assert (f"{TRAFFIC}_messagesin_total", frozenset({("topic", "gone")})) not in metrics


def test_refusals_are_counted(scraper: Scraper, wire: Wire) -> None:
    wire.create_topic("refused")
    wire.produce("refused", batch([b"one"])[:-1] + b"!")
    wire.produce("refused", batch([b"one"]), partition=7)
    wire.produce("not there", batch([b"one"]))
    wire.fetch("refused", 99)
    metrics = scraper.scrape()
    assert value(metrics, f"{TRAFFIC}_failedproducerequests_total", topic="refused") == 2
    assert value(metrics, f"{TRAFFIC}_failedproducerequests_total") == 3
    assert value(metrics, f"{TRAFFIC}_failedfetchrequests_total", topic="refused") == 1
    assert value(metrics, f"{TRAFFIC}_messagesin_total", topic="refused") == 0


def test_requests_are_counted_and_timed_by_api_and_phase(scraper: Scraper, wire: Wire) -> None:
    wire.create_topic("timed")
    for acks in (1, -1):
        wire.produce("timed", batch([b"one"]), acks=acks)
    wire.send(0, 3, produce_request("timed", batch([b"unanswered"]), acks=0))
    assert len(wire.fetch("timed", 0).records) > 0
    wire.fetch("timed", 3, max_wait_ms=300)
    metrics = scraper.scrape()
    assert value(metrics, f"{REQUESTS}_requests_total", request="Produce", version="3") == 3
    assert value(metrics, f"{REQUESTS}_requests_total", request="Fetch", version="4") == 2
    for phase in ("requestqueue", "local", "remote", "responsesend", "total"):
        assert value(metrics, f"{REQUESTS}_{phase}timems_count", request="Produce") == 3
    assert value(metrics, f"{REQUESTS}_remotetimems_sum", request="Produce") == 0
    assert value(metrics, f"{REQUESTS}_remotetimems_sum", request="Fetch") > 250
    phases = [value(metrics, f"{REQUESTS}_{phase}timems_sum", request="Fetch")
              for phase in ("requestqueue", "local", "remote", "responsesend")]  # fmt: skip
    assert sum(phases) == pytest.approx(value(metrics, f"{REQUESTS}_totaltimems_sum", request="Fetch"))
    buckets = sorted(
        (float(dict(labels)["le"]), count)
        for (name, labels), count in metrics.items()
        if name == f"{REQUESTS}_totaltimems_bucket" and ("request", "Fetch") in labels
    )
    assert [*buckets[-1]] == [float("inf"), 2]
    assert [count for _, count in buckets] == sorted(count for _, count in buckets)
    assert max(count for bound, count in buckets if bound < 250) <= 1


def test_what_waits_and_what_is_connected_shows(scraper: Scraper, wire: Wire) -> None:
    wire.create_topic("waited-for")
    body = (b"\xff\xff\xff\xff" + (10_000).to_bytes(4, "big") + b"\0\0\0\1\0\1\0\0\0" + b"\0\0\0\1\0\x0awaited-for"
            + b"\0\0\0\1" + bytes(4) + bytes(8) + b"\0\1\0\0")  # fmt: skip
    wire.send(FETCH, 4, body)
    name, open_now = "kafka_server_delayedoperationpurgatory_purgatorysize", "connection_count"
    eventually(lambda: value(scraper.scrape(), name, delayedOperation="Fetch") == 1, "the fetch to wait")
    metrics = scraper.scrape()
    prefix = "kafka_server_socket_server_metrics"
    assert value(metrics, f"{prefix}_{open_now}", listener="PLAINTEXT") == 1
    with Wire(scraper.server.bootstrap) as other:
        other.produce("waited-for", batch([b"x"]))
        assert receive_frame(wire.socket)
        metrics = scraper.scrape()
        assert value(metrics, name, delayedOperation="Fetch") == 0
        assert value(metrics, f"{prefix}_{open_now}", listener="PLAINTEXT") == 2
        assert value(metrics, f"{prefix}_connection_creation_total") == 2


def test_the_lag_of_a_group_in_records_and_in_seconds(scraper: Scraper, wire: Wire) -> None:
    topic, group = a_topic(scraper.server.bootstrap), f'lag "{uuid.uuid4().hex}\n'
    asker, now_ms = Asker(scraper.server.bootstrap), int(time.time() * 1000)
    for age_s in (3600, 60):
        wire.produce(topic, batch([b"late", b"later"], timestamp_ms=now_ms - age_s * 1000))

    def lag_at(offset: int) -> tuple[object, object]:
        request = commit(group, topic, -1, "")
        request.topics[0].partitions[0].committed_offset = offset
        assert asker.ask(request, 8).topics[0].partitions[0].error_code == 0
        metrics, labels = scraper.scrape(), {"group": group, "topic": topic, "partition": "0"}
        assert value(metrics, "kafka_consumergroup_group_offset", **labels) == offset
        name = "kafka_consumergroup_group_lag"
        return value(metrics, name, **labels), value(metrics, f"{name}_seconds", **labels)

    assert lag_at(1) == (4, pytest.approx(3600, abs=30))
    assert lag_at(2) == (3, pytest.approx(3600, abs=30))
    assert lag_at(3) == (2, pytest.approx(60, abs=30))
    assert lag_at(5) == (0, 0)
    assert lag_at(9) == (0, 0)
    metrics = scraper.scrape()
    assert value(metrics, "kafka_coordinator_group_groupmetadatamanager_numgroups") == 1
    assert value(metrics, "kafka_coordinator_group_groupmetadatamanager_numgroupsempty") == 1
    assert value(metrics, "kafka_coordinator_group_groupmetadatamanager_numoffsets") == 1
    counts = {kind: value(metrics, f"{GROUPS}_group_count", protocol=kind) for kind in ("classic", "consumer", "share")}
    assert counts == {"classic": 1, "consumer": 0, "share": 0}


def test_a_consumer_group_is_counted_by_its_state(scraper: Scraper, wire: Wire) -> None:
    topic, member = a_topic(scraper.server.bootstrap), uuid.uuid4().hex
    with Asker(scraper.server.bootstrap) as asker:
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=uuid.uuid4().hex, member_id=member, member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_names=[topic], topic_partitions=[],
        )  # fmt: skip
        eventually(lambda: asker.ask(request, 1).error_code == 0, "the member joins")
    eventually(lambda: value(scraper.scrape(), f"{GROUPS}_consumer_group_count", state="Stable") == 1, "it is stable")
    assert value(scraper.scrape(), f"{GROUPS}_group_count", protocol="consumer") == 1


def test_the_lag_of_committed_records_ends_at_the_first_open_transaction(scraper: Scraper, wire: Wire) -> None:
    topic, group = a_topic(scraper.server.bootstrap), uuid.uuid4().hex
    producer = Producer({"bootstrap.servers": scraper.server.bootstrap, "transactional.id": group})
    producer.init_transactions(20)
    wire.produce(topic, batch([b"before"]))
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(20)
    wire.produce(topic, batch([b"after"]))
    asker, labels = Asker(scraper.server.bootstrap), {"group": group, "topic": topic, "partition": "0"}
    name = "kafka_consumergroup_group_lag"
    for offset, expected in ((0, (4, 2)), (3, (1, 0))):
        request = commit(group, topic, -1, "")
        request.topics[0].partitions[0].committed_offset = offset
        assert asker.ask(request, 8).topics[0].partitions[0].error_code == 0
        metrics = scraper.scrape()
        assert (value(metrics, name, **labels), value(metrics, f"{name}_read_committed", **labels)) == expected
    producer.abort_transaction(20)

    def lags() -> tuple[float, float]:
        metrics = scraper.scrape()
        return value(metrics, f"{name}_read_committed", **labels), value(metrics, name, **labels)

    eventually_equal(lags, (2.0, 2.0), "the transaction's marker")  # is written after the answer


def test_the_cluster_at_a_glance(scraper: Scraper, wire: Wire) -> None:
    wire.create_topic("three", 3)
    metrics = scraper.scrape()
    assert value(metrics, "kafka_server_replicamanager_partitioncount") == 3
    assert value(metrics, "kafka_server_replicamanager_leadercount") == 3
    assert value(metrics, "kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert value(metrics, "kafka_cluster_partition_underreplicated", topic="three", partition="2") == 0
    assert value(metrics, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert value(metrics, "kafka_controller_kafkacontroller_globalpartitioncount") == 3
    assert value(metrics, "process_resident_memory_bytes") > 1 << 20


def test_the_endpoint_speaks_just_enough_http(scraper: Scraper) -> None:
    status, kind, _ = scraper.get()
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    status, kind, openmetrics = scraper.get(Accept="application/openmetrics-text; version=1.0.0")
    assert (status, kind.partition(";")[0], openmetrics.endswith("# EOF\n")) == (
        200,
        "application/openmetrics-text",
        True,
    )
    assert scraper.get(method="HEAD")[2] == ""
    assert [scraper.get("/metrics?name=x")[0], scraper.get("/")[0], scraper.get(method="POST")[0]] == [200, 404, 405]
    for request, answer in (
        (b"nonsense\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 9000 + b"\r\n", b"HTTP/1.1 431"),
        (b"GET /metrics", b""),
    ):
        with socket.create_connection(("127.0.0.1", scraper.port), 15) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(12)[:12] == answer
    assert scraper.get()[0] == 200


def test_many_scrapers_at_once_are_all_answered(scraper: Scraper) -> None:
    request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    connections = [socket.create_connection(("127.0.0.1", scraper.port), 30) for _ in range(12)]
    for connection in connections:
        connection.sendall(request)
    for connection in connections:
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        connection.close()


def test_there_is_no_endpoint_unless_it_is_asked_for(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings={"headrace.log.level": "debug"})
    assert "the metrics endpoint is ready" not in tail(server.stderr_file)


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:99999", "127.0.0.1:TAKEN"])
def test_an_address_that_cannot_be_had_is_refused_by_name(headrace_server: StartHeadrace, address: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = address.replace("TAKEN", str(taken.getsockname()[1]))
        with pytest.raises(RuntimeError, match=f"headrace.metrics.listen='?{address}"):
            headrace_server(settings={"headrace.metrics.listen": address})


def take_from_a_share_group(asker: Asker, topic: str) -> None:
    """A member of a share group with a partition, whose metrics are there once a broker has served one."""
    beat = m.ShareGroupHeartbeatRequest(group_id="documented-queue", member_id="one", subscribed_topic_names=[topic])

    def assigned() -> list[m.ShareGroupHeartbeatResponse.TopicPartitions]:
        answer = asker.ask(beat, 1)
        beat.member_epoch = answer.member_epoch
        return answer.assignment.topic_partitions if answer.assignment is not None else []

    topic_id = eventually(assigned, "the member has partitions")[0].topic_id
    wanted = m.ShareFetchRequest.FetchTopic(
        topic_id=topic_id, partitions=[m.ShareFetchRequest.FetchPartition(partition_index=0)]
    )
    fetch = m.ShareFetchRequest(
        group_id="documented-queue", member_id="one", max_records=1, batch_size=1, max_bytes=1, topics=[wanted]
    )
    assert asker.ask(fetch, 1).error_code == 0


def test_every_metric_is_in_the_docs(scraper: Scraper, wire: Wire) -> None:
    wire.create_topic("documented")
    topic = a_topic(scraper.server.bootstrap)
    with Asker(scraper.server.bootstrap) as asker:
        asker.ask(commit("documented", topic, -1, ""), 8)
        take_from_a_share_group(asker, topic)
    page = (Path(__file__).parents[2] / "docs" / "observability.md").read_text()
    documented = set(re.findall(r"^\| `(kafka_\w+?)(?:_total)?` ", page, re.MULTILINE))
    documented -= {"kafka_server_socket_server_metrics_authenticating_connections"}  # told by brokers with SASL
    state = re.compile("numgroups(preparingrebalance|completingrebalance|stable|dead)$")
    told = {family.name for family in text_string_to_metric_families(scraper.get()[2]) if not state.search(family.name)}
    assert documented == {name for name in told if not name.startswith("process_")}


def test_a_broker_ends_though_a_scraper_never_asks(scraper: Scraper) -> None:
    with socket.create_connection(("127.0.0.1", scraper.port), 15) as connection:
        connection.sendall(b"GET ")
        time.sleep(0.1)
        assert scraper.server.stop() == 0


def test_clients_over_their_quota_are_counted(scraper: Scraper) -> None:
    with Asker(scraper.server.bootstrap) as asker:
        topic = create_topic(asker)
        set_quota(asker, {"client_id": "slow"}, producer_byte_rate=10_000)
    with Client(scraper.server.bootstrap, "slow") as client:
        told = client.ask(produce(topic, 110_000), 9).throttle_time_ms
    metrics = scraper.scrape()
    assert told > 0
    assert value(metrics, "kafka_server_clientquotas_throttletimems_sum", quota="produce") == told
    assert value(metrics, "kafka_server_clientquotas_throttletimems_count", quota="produce") == 1
    assert value(metrics, "kafka_server_clientquotas_throttletimems_count", quota="fetch") == 0
    assert value(metrics, "kafka_server_clientquotas_trackedclients", quota="produce") == 1
