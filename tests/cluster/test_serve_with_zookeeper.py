"""`headrace serve --zookeeper` as an operator meets it: what it says when it cannot start, ids from the cluster, and
data directories that belong elsewhere."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.config.shipped import CONFLUENT, SHIPPED_2_8, SHIPPED_3_9, as_file
from tests.harness import HeadraceServer, child_environment, free_ports, unused
from tests.wire import Wire, batch
from tests.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.slow
REFUSED = 2


@pytest.fixture
def address(zookeeper: ZooKeeperServer, tmp_path: Path) -> str:
    """An empty chroot."""
    return f"{zookeeper.address}/serve/{unused(tmp_path.name)}"  # directories of tests that passed are used again


@pytest.fixture
def servers() -> Iterator[list[HeadraceServer]]:
    started: list[HeadraceServer] = []
    yield started
    for each in started:
        each.stop()


def refusal(server: HeadraceServer) -> str:
    """The one line with which a server that must not start says why."""
    done = subprocess.run(
        server.command(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=child_environment()
    )
    assert (done.returncode, done.stdout) == (REFUSED, ""), done.stderr
    lines = [line for line in done.stderr.splitlines() if " INFO " not in line and " WARNING " not in line]
    assert len(lines) == 1, done.stderr
    return lines[0]


def meta(directory: Path) -> dict[str, str]:
    lines = (directory / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_no_server_is_said_after_the_connection_time_out(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    server = HeadraceServer(tmp_path / "data", {"zookeeper.connection.timeout.ms": "700"}, ("--zookeeper", nobody))
    assert refusal(server) == (
        f"headrace serve: zookeeper.connect={nobody}: no server answered within 0.7 s; "
        "check that the ensemble is running and that this is its address"
    )


def test_without_kazoo_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kazoo.py").write_text("raise ImportError('no kazoo here')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = refusal(HeadraceServer(tmp_path / "data", {}, ("--zookeeper", "127.0.0.1:1")))
    assert "zookeeper.connect=127.0.0.1:1 requires kazoo" in said
    assert "pip install 'headrace[zookeeper]'" in said


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    said = refusal(HeadraceServer(tmp_path / "data", {}, ("--zookeeper", "zk1:two")))
    assert said == "headrace serve: zookeeper.connect='zk1:two': 'zk1:two' is not HOST:PORT"


def test_an_id_from_the_cluster_is_kept_in_the_data_directory(
    address: str, tmp_path: Path, servers: list[HeadraceServer]
) -> None:
    for number in (1001, 1002):
        server = HeadraceServer(tmp_path / f"data-{number}", {}, ("--broker-id", "-1", "--zookeeper", address))
        servers.append(server.start())
        assert meta(server.data)["broker.id"] == str(number)
    assert servers[0].stop() == 0
    servers[0].start()
    assert meta(servers[0].data)["broker.id"] == "1001"
    client = KazooClient(address)
    client.start()
    assert sorted(client.get_children("/brokers/ids")) == ["1001", "1002"]
    client.stop()
    client.close()


def test_an_id_that_another_directory_has_is_refused_when_its_session_does_not_end(
    address: str, tmp_path: Path, servers: list[HeadraceServer]
) -> None:
    arguments = ("--broker-id", "7", "--zookeeper", address)
    servers.append(HeadraceServer(tmp_path / "first", {}, arguments).start())
    second = HeadraceServer(tmp_path / "second", {"zookeeper.session.timeout.ms": "500"}, arguments)
    assert refusal(second) == (
        f"headrace serve: broker id 7 is registered by another broker at PLAINTEXT://{servers[0].bootstrap}; "
        "stop that broker or choose another broker.id"
    )


def test_a_directory_of_another_cluster_is_refused(
    address: str, zookeeper: ZooKeeperServer, tmp_path: Path, servers: list[HeadraceServer]
) -> None:
    server = HeadraceServer(tmp_path / "data", {}, ("--zookeeper", address)).start()
    servers.append(server)
    server.stop()
    found = meta(server.data)
    said = refusal(HeadraceServer(tmp_path / "data", {}, ("--zookeeper", f"{address}-mistyped")))
    assert f"data directory {server.data} belongs to cluster {found['cluster.id']}, not to " in said
    client = KazooClient(zookeeper.address)
    client.start()
    path = address.partition("/")[2]
    assert json.loads(client.get(f"/{path}/cluster/id")[0])["id"] == found["cluster.id"]
    client.stop()
    client.close()


def test_a_directory_with_a_tree_of_its_own_is_not_joined_to_a_cluster(
    address: str, tmp_path: Path, servers: list[HeadraceServer]
) -> None:
    alone = HeadraceServer(tmp_path / "data").start()
    servers.append(alone)
    alone.stop()
    said = refusal(HeadraceServer(tmp_path / "data", {}, ("--zookeeper", address)))
    assert f"data directory {alone.data} belongs to cluster {meta(alone.data)['cluster.id']}, not to " in said


@pytest.mark.parametrize("shipped", [SHIPPED_2_8, SHIPPED_3_9, CONFLUENT], ids=["2.8", "3.9", "confluent"])
def test_the_server_properties_that_apache_kafka_ships_starts_a_broker(
    shipped: dict[str, str], address: str, tmp_path: Path, servers: list[HeadraceServer]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(as_file({**shipped, "zookeeper.connect": address}))
    server = HeadraceServer(tmp_path / "data", {}, ("--config", str(file), "--strict"))  # and a port and a directory
    servers.append(server.start())
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("moved") == 0
        assert wire.produce("moved", batch([b"in"])).error_code == 0
    assert meta(server.data)["broker.id"] == "0"
    log = server.stderr_file.read_text()
    assert "these settings have no effect in headrace: num.network.threads, num.io.threads" in log
    assert "unknown setting" not in log
