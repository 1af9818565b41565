"""One cluster of Apache Kafka 3.9 and of headrace: each leads, follows, controls and is replaced by the other.

Apache Kafka, which starts first, is controller: it tells our brokers who leads, and our leaders ask it for changes of
their ISRs. Then it is killed, one of ours takes its place, and Apache Kafka comes back as one that is told.
"""

import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.verifying import VerifyingProducer, verify
from tests.harness import HeadraceServer
from tests.peers import kafka
from tests.peers.node import KafkaNode, ZooKeeper

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(kafka.missing_tools() is not None, reason=kafka.missing_tools() or ""),
]

TOPIC, PARTITIONS, WAIT_SECONDS = "mixed", 3, 90.0
KAFKA_ID, OURS = 1, (2, 3)
SETTINGS = {"min.insync.replicas": "2", "zookeeper.session.timeout.ms": "6000", "replica.lag.time.max.ms": "4000"}
KAFKAS = "min.insync.replicas=2\nzookeeper.session.timeout.ms=6000\nreplica.lag.time.max.ms=4000\n"


def isrs(bootstrap: str) -> tuple[int, list[set[int]], list[int]]:
    """The controller, and of each partition the ISR and the leader."""
    metadata = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(TOPIC, timeout=10)
    partitions = [metadata.topics[TOPIC].partitions[number] for number in range(PARTITIONS)]
    return metadata.controller_id, [set(each.isrs) for each in partitions], [each.leader for each in partitions]


def wait_until_all_in_sync(bootstrap: str) -> int:
    """Returns when every broker is in every ISR; the controller."""
    deadline, wanted = time.monotonic() + WAIT_SECONDS, [{KAFKA_ID, *OURS}] * PARTITIONS
    while (seen := isrs(bootstrap))[1] != wanted:
        assert time.monotonic() < deadline, f"controller, ISRs, leaders: {seen}"
        time.sleep(0.2)
    return seen[0]


def test_apache_kafka_and_headrace_lead_follow_and_control_each_other(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        node = KafkaNode(tmp_path / "kafka", zookeeper=zookeeper.address, settings=KAFKAS)
        ours = {
            number: HeadraceServer(
                tmp_path / f"headrace-{number}",
                SETTINGS,
                ("--broker-id", str(number), "--zookeeper", zookeeper.address),
            )
            for number in OURS
        }
        try:
            node.start()
            for server in ours.values():
                server.start()
            bootstrap = ",".join(server.bootstrap for server in ours.values())
            admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
            deadline = time.monotonic() + WAIT_SECONDS
            while set(admin.list_topics(timeout=10).brokers) != {KAFKA_ID, *OURS}:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            made = admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3)])
            made[TOPIC].result(30)
            assert wait_until_all_in_sync(bootstrap) == KAFKA_ID
            assert set(isrs(bootstrap)[2]) == {KAFKA_ID, *OURS}
            # Not idempotent: librdkafka knows no offset of what Apache Kafka calls a duplicate that it has forgotten.
            with VerifyingProducer(
                bootstrap, TOPIC, partitions=PARTITIONS, per_second=300, is_idempotent=False
            ) as producer:
                producer.wait_for(300)
                ours[2].kill()
                producer.wait_for(300)
                ours[2].restart()
                assert wait_until_all_in_sync(bootstrap) == KAFKA_ID
                node.kill()
                producer.wait_for(300)
                assert isrs(bootstrap)[0] in OURS
                node.start()
                assert wait_until_all_in_sync(bootstrap) in OURS
                producer.wait_for(300)
            assert not producer.failed
            report = verify(bootstrap, TOPIC, producer)
            assert report.acknowledged >= 1200
            assert not report.faults(), report.faults()
            wait_until_all_in_sync(bootstrap)
        except BaseException:
            print(node.said(), *(server.stderr_file.read_text()[-4000:] for server in ours.values()), sep="\n----\n")
            raise
        finally:
            for server in ours.values():
                server.stop()
            node.stop()
        logs = sorted(path.read_bytes() for path in tmp_path.glob("headrace-*/mixed-0/*.log"))
        theirs = (node.log_dirs[0] / "mixed-0" / "00000000000000000000.log").read_bytes()
        assert logs == [theirs, theirs]
