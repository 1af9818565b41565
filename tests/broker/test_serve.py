"""`headrace serve` as an operator meets it: it says when it is ready, stops cleanly, finds everything again, and
refuses what it cannot do in one clear line.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import StartHeadrace
from tests.eventually import WITHIN_SECONDS
from tests.harness import HeadraceServer, child_environment, tail
from tests.wire import Wire, batch

pytestmark = pytest.mark.slow  # processes of its own


REFUSED = 2


def refusal(server: HeadraceServer) -> str:
    """The one line with which a server that must not start says why."""
    done = subprocess.run(
        server.command(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, env=child_environment()
    )
    assert done.returncode == REFUSED, done.stderr
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert len(lines) == 1, done.stderr
    return lines[0]


def write_five(server: HeadraceServer, topic: str = "kept") -> None:
    """Five batches in a new topic."""
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic(topic, configs={"retention.ms": "-1"}) == 0
        for number in range(5):
            assert wire.produce(topic, batch([b"%d" % number])).base_offset == number


def everything(server: HeadraceServer, topic: str = "kept") -> bytes:
    """All records of the topic's first partition, as they are on disk."""
    with Wire(server.bootstrap) as wire:
        fetched = wire.fetch(topic, 0)
    assert (fetched.error_code, fetched.high_watermark) == (0, 5)
    return fetched.records


def test_says_ready_with_the_address_it_answers_on(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    assert server.bootstrap.startswith("127.0.0.1:")
    assert server.port != 0
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("first") == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_ends_with_status_zero_when_asked_to(headrace_server: StartHeadrace, how: signal.Signals) -> None:
    server = headrace_server()
    write_five(server)
    assert server.process is not None
    server.process.send_signal(how)
    assert server.process.wait(WITHIN_SECONDS) == 0
    assert "Traceback" not in tail(server.stderr_file)


def test_ends_although_clients_are_connected_and_waiting(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    write_five(server)
    with Wire(server.bootstrap) as idle, Wire(server.bootstrap) as half_a_frame:
        half_a_frame.socket.sendall(b"\0\0\0\x20half")
        assert idle.create_topic("another") == 0
        assert server.stop() == 0


def test_finds_everything_after_a_clean_stop(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    write_five(server)
    before = everything(server)
    assert server.stop() == 0
    server.restart()
    assert everything(server) == before
    with Wire(server.bootstrap) as wire:
        assert wire.produce("kept", batch([b"more"])).base_offset == 5


def test_finds_everything_after_kill_9(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    write_five(server)
    before = everything(server)
    server.kill()
    server.restart()
    assert everything(server) == before
    with Wire(server.bootstrap) as wire:
        assert wire.produce("kept", batch([b"more"])).base_offset == 5


def test_cuts_what_a_crash_tore_from_the_last_batch(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    write_five(server)
    before = everything(server)
    server.kill()
    (segment,) = server.data.glob("kept-0/*.log")
    with segment.open("ab") as file:
        file.write(batch([b"torn" * 100], base_offset=5)[:-7])
    server.restart()
    assert everything(server) == before
    assert segment.stat().st_size == len(before)


def test_keeps_its_cluster_id_and_topic_ids_over_restarts(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    write_five(server)
    meta = (server.data / "meta.properties").read_text()
    topic_id = (server.data / "kept-0" / "partition.metadata").read_text()
    server.stop()
    server.restart()
    assert sorted(_settings(meta)) == sorted(_settings((server.data / "meta.properties").read_text()))
    assert (server.data / "kept-0" / "partition.metadata").read_text() == topic_id


def test_refuses_a_data_directory_that_a_living_process_holds(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    line = refusal(HeadraceServer(server.data))
    assert str(server.data) in line
    write_five(server)  # the first one was not disturbed
    assert everything(server)


def test_refuses_a_data_directory_of_another_broker_id(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    server.stop()
    line = refusal(HeadraceServer(server.data, arguments=["--broker-id", "7"]))
    assert "7" in line and "broker" in line


def test_refuses_a_data_directory_of_another_cluster(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    server.stop()
    meta = server.data / "meta.properties"
    changed = [
        "cluster.id=AAAAAAAAAAAAAAAAAAAAAA" if line.startswith("cluster.id=") else line
        for line in meta.read_text().splitlines()
    ]
    meta.write_text("\n".join(changed) + "\n")
    assert "AAAAAAAAAAAAAAAAAAAAAA" in refusal(HeadraceServer(server.data))


def test_refuses_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal(HeadraceServer(tmp_path / "data", listen=f"127.0.0.1:{port}"))
    assert str(port) in line


def test_refuses_a_directory_it_may_not_write(tmp_path: Path) -> None:
    forbidden = tmp_path / "forbidden"
    forbidden.mkdir(mode=0o500)
    data = forbidden / "data" if os.geteuid() else Path("/sys/headrace")  # root may write everywhere but there
    assert str(data) in refusal(HeadraceServer(data))


def test_refuses_a_file_where_the_data_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    assert str(tmp_path / "data") in refusal(HeadraceServer(tmp_path / "data"))


@pytest.mark.parametrize("directories", ["", "data,data"])
def test_refuses_log_directories_of_which_none_or_two_are_the_same(tmp_path: Path, directories: str) -> None:
    server = HeadraceServer(tmp_path / "data", arguments=["--data", directories])
    assert "log.dirs" in refusal(server)


def test_refuses_a_tree_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "data" / "headrace-tree.sqlite").mkdir(parents=True)
    assert "headrace-tree.sqlite" in refusal(HeadraceServer(tmp_path / "data"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("log.segment.bytes", "many"),
        ("log.segment.bytes", "-5"),
        ("log.cleanup.policy", "burn"),
        ("num.partitions", "0"),
    ],
)
def test_refuses_a_bad_value_and_names_it(tmp_path: Path, key: str, value: str) -> None:
    line = refusal(HeadraceServer(tmp_path / "data", {key: value}))
    assert key in line and value in line


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1:99999", "127.0.0.1:x", ""])
def test_refuses_an_address_it_cannot_understand(tmp_path: Path, listen: str) -> None:
    assert refusal(HeadraceServer(tmp_path / "data", listen=listen))


def test_reads_settings_from_a_properties_file(headrace_server: StartHeadrace, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("# as Kafka writes it\nnum.partitions=3\nauto.create.topics.enable=false\n")
    server = headrace_server(arguments=["--config", str(properties)], settings={"log.segment.bytes": "1048576"})
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("by-default", partitions=-1) in (0, 37)


def test_the_broker_path_loads_no_terminal_toolkit_and_nothing_of_spark() -> None:
    code = "import json, sys; import headrace.broker.app; print(json.dumps(sorted(sys.modules)))"
    command = ["python", "-c", code]
    done = subprocess.run([_python(), *command[1:]], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {
        "pyspark",
        "pyarrow",
        "numpy",
        "pandas",
        "pydantic",
        "typer",
        "rich",
        "click",
        "matplotlib",
        "kazoo",
    }


def _python() -> str:
    return HeadraceServer(Path()).command()[0]


def _settings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_an_unknown_setting_is_a_warning_and_one_without_a_meaning_is_listed(tmp_path: Path) -> None:
    settings = {"num.partition": "3", "num.io.threads": "8", "metric.reporters": "com.example.Reporter"}
    server = HeadraceServer(tmp_path / "data", settings).start()
    server.stop()
    lines = server.stderr_file.read_text().splitlines()
    (warning,) = (line for line in lines if " WARNING " in line and "kernel" not in line)
    assert warning.endswith("unknown setting 'num.partition': did you mean 'num.partitions'?")
    (listed,) = (line for line in lines if "have no effect" in line)
    assert "these settings have no effect in headrace: num.io.threads, metric.reporters;" in listed


def test_an_unknown_setting_is_refused_when_that_is_asked_for(tmp_path: Path) -> None:
    server = HeadraceServer(tmp_path / "data", {"num.partition": "3"}, ("--strict",))
    assert refusal(server) == (
        "headrace serve: unknown setting 'num.partition': did you mean 'num.partitions'? "
        "`headrace settings` lists all settings."
    )


def test_a_setting_that_may_not_be_ignored_is_refused_with_the_reason(tmp_path: Path) -> None:
    server = HeadraceServer(tmp_path / "data", {"authorizer.zookeeper.url": "127.0.0.1:2181"})
    assert refusal(server).startswith(
        "headrace serve: authorizer.zookeeper.url='127.0.0.1:2181' cannot be ignored. ACLs are kept in "
    )


def test_a_setting_is_explained_without_a_broker() -> None:
    command = [sys.executable, "-m", "headrace", "serve", "--explain", "log.dirs"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.startswith("log.dirs: a setting of a broker\ntype: list\ndefault: headrace-data\n")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"\x7fELF\0\0")
    server = HeadraceServer(tmp_path / "data", {}, ("--config", str(file)))
    assert refusal(server) == f"headrace serve: --config {file}: the file is not a text file: it contains null bytes"
