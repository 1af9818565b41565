"""`headrace cluster` against Apache Kafka of one broker: what it says, and what it refuses."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import run_headrace
from tests.client.brokers import topic_name


@pytest.fixture
def topic(apache_kafka: str) -> str:
    name = topic_name("cluster")
    done = run_headrace("topic", "create", name, "-p", "2", bootstrap=apache_kafka)
    assert done.returncode == 0, done.stderr.decode()
    return name


def said(bootstrap: str, *arguments: str) -> str:
    done = run_headrace("cluster", *arguments, bootstrap=bootstrap)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def refused(bootstrap: str, *arguments: str) -> str:
    done = run_headrace("cluster", *arguments, bootstrap=bootstrap)
    assert done.returncode == 2, done.stdout.decode()
    return done.stderr.decode().strip()


def test_how_a_healthy_cluster_is(apache_kafka: str, topic: str) -> None:
    status = json.loads(said(apache_kafka, "status", "--json"))
    assert status["ready"] is True
    assert status["brokers"] == [1] and status["controller"] == 1
    assert status["partitions"] >= 2
    first, second, *_ = said(apache_kafka, "status").splitlines()
    assert "ready" in first and second.split() == ["broker", "ids", "1;", "controller", "1"]
    (broker,) = json.loads(said(apache_kafka, "brokers", "--json"))
    assert broker["address"] == apache_kafka and broker["leaders"] == broker["replicas"] == broker["in_sync"] >= 2
    assert apache_kafka in said(apache_kafka, "brokers")
    assert said(apache_kafka, "controller") == f"1 {apache_kafka}\n"
    assert said(apache_kafka, "why-not-ready").startswith("ready")
    assert said(apache_kafka, "elect").startswith("no election needed")


def test_nothing_to_move(apache_kafka: str, topic: str, tmp_path: Path) -> None:
    assert said(apache_kafka, "reassign", topic, "--to", "1") == "nothing to move\n"
    assert said(apache_kafka, "reassign", "--status") == "nothing is moving\n"
    assert said(apache_kafka, "reassign", "--cancel") == "nothing is moving\n"
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 1, "replicas": [1]}]}))
    assert said(apache_kafka, "reassign", "--plan", str(plan), "--dry-run") == f"would move {topic}-1 to 1\n"
    assert said(apache_kafka, "reassign", "--plan", str(plan)).endswith("1 of 1 moved\n")


def test_what_cannot_be_done_is_said_in_one_line(apache_kafka: str, topic: str, tmp_path: Path) -> None:
    assert "broker 7 does not exist; the brokers are: 1" in refused(apache_kafka, "reassign", topic, "--to", "1,7")
    assert "'x' is not a broker's number" in refused(apache_kafka, "reassign", topic, "--to", "x")
    assert "topic or partition nowhere does not exist" in refused(apache_kafka, "reassign", "nowhere", "--to", "1")
    assert f"topic or partition {topic}:2 does not exist" in refused(
        apache_kafka, "reassign", f"{topic}:2", "--to", "1"
    )
    assert "give exactly one of --to" in refused(apache_kafka, "reassign", topic)
    assert "2 replicas, and 1 brokers may have them" in refused(apache_kafka, "reassign", topic, "-r", "2")
    assert "1 replicas, and 0 brokers" in refused(apache_kafka, "drain", "1", "--dry-run")
    assert "broker 7 does not exist" in refused(apache_kafka, "drain", "7")
    broken = tmp_path / "plan.json"
    broken.write_text('{"partitions": [{"topic": "t"}]}')
    assert "KeyError('partition'); expected" in refused(apache_kafka, "reassign", "--plan", str(broken))
    assert "No such file" in refused(apache_kafka, "reassign", "--plan", str(tmp_path / "none.json"))
    assert "broker 9 does not exist" in refused(apache_kafka, "roll", "--command", "true", "--broker", "9")
    assert "only {broker}, {host} and {port}" in refused(apache_kafka, "roll", "--command", "x {name}")


def test_rolling_runs_the_command_and_stops_at_its_failure(apache_kafka: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    script = f"import sys; open({str(seen)!r}, 'a').write(' '.join(sys.argv[1:]))"
    command = f'{sys.executable} -c "{script}" {{broker}} {{host}}:{{port}}'
    assert "would restart broker 1" in said(apache_kafka, "roll", "--command", command, "--dry-run")
    assert not seen.exists()
    assert "broker 1 is back" in said(apache_kafka, "roll", "--command", command)
    assert seen.read_text() == f"1 {apache_kafka}"
    failing = f"{sys.executable} -c \"import sys; sys.exit('no such unit')\""
    done = run_headrace("cluster", "roll", "--command", failing, bootstrap=apache_kafka)
    assert done.returncode == 1
    assert "ended with 1: no such unit; the remaining brokers were not restarted" in done.stderr.decode()
