"""Real clients under quotas, and Apache Kafka's own tool for them."""

import re
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.asker import Asker
from tests.broker.admin_requests import create_topic
from tests.broker.conftest import PEER
from tests.broker.quota_requests import set_quota
from tests.eventually import WITHIN_SECONDS
from tests.peers import kafka
from tests.peers.kafka_tools import Tools, kafka_tools

RATE = 200_000
CONFIGS = "kafka.admin.ConfigCommand"


def test_confluent_kafka_hears_of_its_delay(shared_headrace: str) -> None:
    name = f"confluent-{uuid.uuid4().hex[:8]}"
    with Asker(shared_headrace) as asker:
        topic = create_topic(asker)
        set_quota(asker, {"client_id": name}, producer_byte_rate=RATE)
    heard: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": shared_headrace,
            "client.id": name,
            "throttle_cb": lambda event: heard.append(event.throttle_time),
        }
    )
    for _ in range(21):
        producer.produce(topic, bytes(100_000))
    assert producer.flush(WITHIN_SECONDS) == 0
    producer.poll(0)
    assert max(heard, default=0) > 0.2, "2.1 MB: 2 MB at once, then 200 kB/s"


@pytest.mark.parametrize("_", [pytest.param("Java", marks=PEER)])
def test_javas_producer_shows_its_delay_in_its_metrics(shared_headrace: str, tmp_path: Path, _: str) -> None:
    name = f"java-{uuid.uuid4().hex[:8]}"
    with Asker(shared_headrace) as asker:
        topic = create_topic(asker)
        set_quota(asker, {"client_id": name}, producer_byte_rate=RATE)
    printed = kafka.run_tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", "2300",
        "--record-size", "1000",
        "--throughput", "-1", "--print-metrics", "--producer-props", f"bootstrap.servers={shared_headrace}",
        f"client.id={name}", "compression.type=none", logs=tmp_path,
    )  # fmt: skip
    assert "2300 records sent" in printed
    found = re.search(r"produce-throttle-time-max:\{client-id=[^}]*\}\s*: ([\d.]+)", printed)
    assert found is not None and float(found[1]) > 0, "2.3 MB: 2 MB at once, then 200 kB/s"


def configs(bootstrap: str, tools: Tools, names: str) -> list[str]:
    """What kafka-configs prints about quotas, with `names` for those of this run."""

    def run(*arguments: str) -> list[str]:
        printed = tools.check(CONFIGS, "--bootstrap-server", bootstrap, *arguments)
        lines = [line.replace(names, "NAME") for line in printed.splitlines() if line.strip()]
        return sorted(" ".join(sorted(re.split("[ ,]+", line))) for line in lines)  # quotas come in any order

    user, client = ["--entity-type", "users", "--entity-name", names], ["--entity-type", "clients"]
    ip = ["--entity-type", "ips", "--entity-name", "127.9.9.9"]
    both = [*user, *client, "--entity-default"]
    printed = run("--alter", *user, "--add-config", "producer_byte_rate=1024,request_percentage=50")
    printed += run("--alter", *both, "--add-config", "consumer_byte_rate=2048")
    printed += run("--alter", *ip, "--add-config", "connection_creation_rate=7")
    printed += run("--describe", *user)
    printed += run("--describe", *both)
    printed += run("--describe", *ip)
    printed += run("--alter", *user, "--delete-config", "producer_byte_rate,request_percentage")
    printed += run("--alter", *both, "--delete-config", "consumer_byte_rate")
    printed += run("--alter", *ip, "--delete-config", "connection_creation_rate")
    printed += run("--describe", *user)
    return printed


@pytest.mark.parametrize("_", [pytest.param("Java", marks=PEER)])
def test_kafka_configs_prints_the_same_of_both(shared_headrace: str, apache_kafka: str, tmp_path: Path, _: str) -> None:
    name = f"tool-{uuid.uuid4().hex[:8]}"
    with kafka_tools(tmp_path) as tools:
        ours = configs(shared_headrace, tools, name)
        assert any("producer_byte_rate=1024" in line for line in ours)
        assert ours == configs(apache_kafka, tools, name)
