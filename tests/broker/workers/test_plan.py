"""What each worker is told, from the settings that all were given."""

from pathlib import Path

import pytest

from headrace.broker.options import StartRefused
from headrace.broker.workers.plan import check, directory_of_workers, left_out, settings_of
from headrace.config import BrokerConfig, read_broker
from headrace.errors import InvalidConfig

SOCKETS = Path("/tmp/sockets")


def config_of(**given: str) -> BrokerConfig:
    return read_broker({name.replace("__", "."): text for name, text in given.items()}).config


def test_ids_ports_and_directories_follow_those_of_the_first() -> None:
    config = config_of(
        broker__id="7",
        log__dirs="/a,/b",
        listeners="PLAINTEXT://:9092,SSL://10.0.0.1:9192",
        advertised__listeners="PLAINTEXT://kafka.example:443,SSL://[::1]:0",
    )
    settings = settings_of(2, 3, config, {}, SOCKETS)
    assert settings["broker.id"] == "9"
    assert settings["log.dirs"] == "/a/worker-2,/b/worker-2"
    assert settings["listeners"] == "PLAINTEXT://:9094,SSL://10.0.0.1:9194"
    assert settings["advertised.listeners"] == "PLAINTEXT://kafka.example:445,SSL://[::1]:0"
    assert read_broker(settings).config.broker_id == 9


def test_a_port_that_is_free_stays_so() -> None:
    assert settings_of(1, 2, config_of(listeners="PLAINTEXT://127.0.0.1:0"), {}, SOCKETS)["listeners"].endswith(":0")


def test_without_zookeeper_the_workers_share_a_tree_and_have_as_many_replicas_as_there_are_workers() -> None:
    settings = settings_of(0, 2, config_of(), {"offsets.topic.replication.factor": "1"}, SOCKETS)
    assert settings["zookeeper.connect"] == "unix:/tmp/sockets/tree"
    assert settings["transaction.state.log.replication.factor"] == "2"
    assert settings["transaction.state.log.min.isr"] == "2"
    assert "offsets.topic.replication.factor" not in settings
    assert settings_of(0, 1, config_of(), {}, SOCKETS)["transaction.state.log.min.isr"] == "1"
    assert settings_of(0, 9, config_of(), {}, SOCKETS)["offsets.topic.replication.factor"] == "3"


def test_with_zookeeper_the_cluster_is_the_operators() -> None:
    settings = settings_of(0, 2, config_of(zookeeper__connect="zk:2181"), {}, SOCKETS)
    assert "zookeeper.connect" not in settings
    assert not any("replication.factor" in name for name in settings)


def test_the_host_is_the_rack_unless_another_is_given() -> None:
    assert settings_of(0, 2, config_of(), {}, SOCKETS)["broker.rack"]
    assert "broker.rack" not in settings_of(0, 2, config_of(broker__rack="r1"), {}, SOCKETS)


def test_each_worker_has_metrics_where_the_supervisor_reads_them() -> None:
    config = config_of(headrace__metrics__listen=":9100")
    found = {settings_of(each, 2, config, {}, SOCKETS)["headrace.metrics.listen"] for each in range(2)}
    assert found == {"unix:/tmp/sockets/metrics-0", "unix:/tmp/sockets/metrics-1"}
    assert "headrace.metrics.listen" not in settings_of(0, 2, config_of(), {}, SOCKETS)


@pytest.mark.parametrize(
    ("given", "workers", "told"),
    [
        ({}, 0, "--workers=0 is not at least 1"),
        ({"broker__id": "-1"}, 2, "broker.id=-1"),
        ({"listeners": "A://:9092,B://:9094", "listener__security__protocol__map": "A:PLAINTEXT,B:PLAINTEXT"}, 3,
         "9092 to 9094 for A and 9094 to 9096 for B, which overlap"),
        ({"listeners": "PLAINTEXT://:65535"}, 2, "up to 65536"),
        ({"advertised__listeners": "PLAINTEXT://h:65535"}, 2, "advertised.listeners: 2 workers"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_divided_are_refused(given: dict[str, str], workers: int, told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        check(config_of(**given), workers)


def test_listeners_that_leave_room_are_not_refused() -> None:
    protocols = "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT"
    listeners = "A://:9092,B://:9095,C://:0"
    check(config_of(listeners=listeners, listener__security__protocol__map=protocols), 3)


def test_the_directory_of_a_broker_is_not_that_of_workers(tmp_path: Path) -> None:
    config = config_of(log__dirs=str(tmp_path))
    check(config, 2)
    assert directory_of_workers(config) is None
    (tmp_path / "meta.properties").touch()
    with pytest.raises(StartRefused, match="belongs to one broker"):
        check(config, 2)


@pytest.mark.parametrize("file", ["worker-0/meta.properties", "tree/headrace-tree.sqlite"])
def test_the_directory_of_workers_is_known(tmp_path: Path, file: str) -> None:
    path = tmp_path / file
    path.parent.mkdir()
    path.touch()
    assert directory_of_workers(config_of(log__dirs=str(tmp_path))) == str(tmp_path)


def test_directories_of_workers_that_are_gone_are_told(tmp_path: Path) -> None:
    for name in ("worker-0", "worker-1", "worker-2", "worker-x"):
        (tmp_path / name).mkdir()
    assert left_out(config_of(log__dirs=str(tmp_path)), 2) == [str(tmp_path / "worker-2")]
