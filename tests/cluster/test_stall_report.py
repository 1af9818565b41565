"""A report of where records are stuck tells of open transactions, of groups, and of brokers that do not answer."""

import re
import socket

import pytest
from confluent_kafka import Producer

from tests.cluster import stall_report as reporting
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.stall_report import stall_report
from tests.cluster.transactional_clients import FAST, WAIT_S
from tests.eventually import WITHIN_SECONDS
from tests.harness import unused

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]


def test_an_open_transaction_and_a_silent_broker_are_told(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = unused("stuck")
    group = f"{topic}-group"
    cluster.create_topic(topic, 1, 3)
    producer = Producer({**FAST, "bootstrap.servers": cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"undecided", partition=0)
    assert producer.flush(WAIT_S) == 0
    monkeypatch.setattr(reporting, "ANSWER_SECONDS", WITHIN_SECONDS)
    said = stall_report(cluster, topic, group, "share")
    assert re.search(rf"^{topic}-0: leader \d, epoch \d+, ISR \[.*\], bytes ", said, re.MULTILINE)
    assert "    end 1, high watermark 1, last stable 0, open transactions ['of producer " in said
    assert re.search(rf"coordinates TransactionState\(.*transactional_id='{topic}', transaction_state='Ongoing'", said)
    assert "does not answer" not in said and "cannot be told" not in said
    producer.abort_transaction(WAIT_S)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(reporting, "ANSWER_SECONDS", 0.1)
        monkeypatch.setattr(cluster.brokers[2], "bootstrap", f"127.0.0.1:{silent.getsockname()[1]}")
        said = stall_report(cluster, topic, group, "share")
    assert "broker 2 does not answer MetadataRequest: TimeoutError" in said
    assert "broker 2 does not answer OffsetFetchRequest: TimeoutError" in said
