"""headrace.testing.Broker: a real broker that starts in a moment, keeps to itself and leaves nothing behind."""

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from headrace.client.consumer.consumer import Consumer, ConsumerSettings
from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import RESOURCE_BROKER, Admin
from headrace.client.producer.producer import Producer
from headrace.errors import InvalidConfig
from headrace.testing import Broker, BrokerFailed
from tests.eventually import WITHIN_SECONDS, collected, eventually

BOTH = pytest.mark.parametrize(
    "in_process_of_its_own", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["thread", "process"]
)


def produce(broker: Broker, *values: bytes, topic: str = "orders") -> None:
    """Sends records and waits until all are acknowledged."""
    with Producer(broker.bootstrap) as producer:
        for value in values:
            producer.send(topic, value)
        producer.flush()


def consume(broker: Broker, count: int, *, group: str = "readers", topic: str = "orders") -> list[bytes | None]:
    """The next `count` records of a group, committed."""
    with Consumer(broker.bootstrap, ConsumerSettings(group_id=group, auto_offset_reset="earliest")) as consumer:
        consumer.subscribe([topic])
        return collected(lambda left: [record.value for record in consumer.poll(500, left)], count)


def settings_of(broker: Broker) -> dict[str, str | None]:
    """What the broker says of its settings."""
    with Cluster(broker.bootstrap) as cluster:
        return {one.name: one.value for one in Admin(cluster).describe_configs(RESOURCE_BROKER, "0")}


def test_records_of_any_time_stay_as_long_as_the_broker() -> None:
    with Broker() as broker:
        assert int(settings_of(broker)["log.retention.check.interval.ms"] or 0) >= 86_400_000
    with Broker(settings={"log.retention.check.interval.ms": 200}) as broker:
        assert settings_of(broker)["log.retention.check.interval.ms"] == "200"


@BOTH
def test_serves_clients_and_is_gone_afterwards(in_process_of_its_own: bool) -> None:
    with Broker(subprocess=in_process_of_its_own) as broker:
        produce(broker, b"tea", b"cake")
        assert consume(broker, 2) == [b"tea", b"cake"]
        data = broker.data
        assert (data / "orders-0").is_dir()
    assert not data.exists()


@BOTH
def test_a_restarted_broker_has_its_address_its_records_and_its_groups(in_process_of_its_own: bool) -> None:
    with Broker(subprocess=in_process_of_its_own) as broker:
        bootstrap = broker.bootstrap
        produce(broker, b"before")
        assert consume(broker, 1) == [b"before"]
        broker.restart()
        assert broker.bootstrap == bootstrap
        produce(broker, b"after")
        assert consume(broker, 1) == [b"after"]


@pytest.mark.slow
def test_what_was_acknowledged_survives_a_kill() -> None:
    with Broker(subprocess=True) as broker:
        produce(broker, b"before")
        broker.kill()
        assert not broker.is_running
        broker.restart()
        assert consume(broker, 1) == [b"before"]


def test_a_thread_cannot_be_killed_and_says_what_can() -> None:
    with Broker() as broker, pytest.raises(BrokerFailed, match="subprocess=True"):
        broker.kill()


@BOTH
def test_data_that_was_given_is_kept(in_process_of_its_own: bool, tmp_path: Path) -> None:
    for value in (b"first", b"second"):
        with Broker(data=tmp_path / "data", subprocess=in_process_of_its_own) as broker:
            assert broker.data == tmp_path / "data"
            produce(broker, value)
            assert consume(broker, 1) == [value]
    assert (tmp_path / "data" / "orders-0").is_dir()


def test_data_of_a_stopped_broker_can_be_looked_at() -> None:
    with Broker() as broker:
        produce(broker, b"tea")
        broker.stop()
        assert b"tea" in (broker.data / "orders-0" / f"{0:020}.log").read_bytes()


@BOTH
def test_two_brokers_at_once_know_nothing_of_each_other(in_process_of_its_own: bool) -> None:
    with Broker(subprocess=in_process_of_its_own) as one, Broker(subprocess=in_process_of_its_own) as other:
        assert one.bootstrap != other.bootstrap
        produce(one, b"one")
        produce(other, b"other")
        assert (consume(one, 1), consume(other, 1)) == ([b"one"], [b"other"])


@BOTH
def test_settings_reach_the_broker(in_process_of_its_own: bool) -> None:
    settings: dict[str, str | int | bool] = {
        "num.partitions": 3,
        "auto.create.topics.enable": False,
        "broker.rack": "a b=c",
    }
    with Broker(settings=settings, subprocess=in_process_of_its_own) as broker:
        found = settings_of(broker)
    assert found["num.partitions"] == "3"
    assert found["auto.create.topics.enable"] == "false"
    assert found["broker.rack"] == "a b=c"
    assert found["group.initial.rebalance.delay.ms"] == "0"


def test_a_setting_that_does_not_exist_is_named_before_anything_starts() -> None:
    with pytest.raises(InvalidConfig, match="'num.partition': did you mean 'num.partitions'"):
        Broker(settings={"num.partition": 3})


def test_the_directory_is_an_argument_and_not_a_setting() -> None:
    with pytest.raises(InvalidConfig, match=r"log\.dirs is not set here.*data="):
        Broker(settings={"log.dirs": "/somewhere"})


@BOTH
def test_a_start_that_fails_says_why_and_leaves_nothing(in_process_of_its_own: bool, tmp_path: Path) -> None:
    with Broker(data=tmp_path), pytest.raises(BrokerFailed, match="did not start: .*in use|another process"):
        Broker(data=tmp_path, subprocess=in_process_of_its_own).start()
    with Broker() as first:
        second = Broker(port=first.port, subprocess=in_process_of_its_own)
        with pytest.raises(BrokerFailed, match="did not start: .*Address already in use; stop what listens there"):
            second.start()
        assert not second.is_running


def test_a_broker_that_is_not_started_says_so() -> None:
    with pytest.raises(BrokerFailed, match="not started"):
        _ = Broker().bootstrap


@pytest.mark.slow
def test_a_process_that_ended_by_itself_is_reported_with_its_log() -> None:
    others = set(psutil.Process().children())  # servers that other tests of this process keep
    broker = Broker(subprocess=True).start()
    (child,) = set(psutil.Process().children()) - others
    child.send_signal(signal.SIGKILL)
    with pytest.raises(BrokerFailed, match="(ended|exited unexpectedly) with status -9"):
        broker.close()


@pytest.mark.slow
@BOTH
def test_nothing_is_left_at_the_end(in_process_of_its_own: bool) -> None:
    with Broker(subprocess=in_process_of_its_own) as broker:  # what the first one imports may stay
        produce(broker, b"warm-up")
    gc.collect()  # what other tests left must not go in between
    before = everything()
    for _ in range(1 if in_process_of_its_own else 3):
        with Broker(subprocess=in_process_of_its_own) as broker:
            produce(broker, b"tea", b"cake")
            assert consume(broker, 2) == [b"tea", b"cake"]
            broker.restart()
    # What closes in other threads, such as those of a client library, may take a moment.
    eventually(lambda: everything() - before == Counter(), "nothing is left")


def everything() -> Counter[str]:
    """This process's open files, threads and child processes."""
    found = Counter(f"thread {each.name}" for each in threading.enumerate())
    found.update(f"child {each.pid}" for each in psutil.Process().children())
    for each in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that listed the directory
            found[os.readlink(f"/proc/self/fd/{each}")] += 1
    return found


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_a_broker_ends_with_a_test_that_was_killed() -> None:
    script = (
        "import psutil, signal, os\n"
        "from headrace.testing import Broker\n"
        "broker = Broker(subprocess=True).start()\n"
        "print(psutil.Process().children()[0].pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, timeout=WITHIN_SECONDS, check=False)
    broker_pid = int(done.stdout)
    eventually(lambda: not is_running(broker_pid), "the broker to end with its test")


@pytest.mark.slow
def test_a_clean_stop_logs_nothing_to_worry_about(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with Broker() as broker:
        produce(broker, b"tea")
    with Broker(subprocess=True) as other:
        produce(other, b"tea")
        log = other.log
    assert caplog.records == []
    assert "WARNING" not in log and "ERROR" not in log


def test_importing_it_imports_no_broker() -> None:
    script = (
        "import pytest, sys\nbefore = set(sys.modules)\nimport headrace.testing.pytest_plugin\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=WITHIN_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == [
        "headrace",
        "headrace.testing",
        "headrace.testing.pytest_plugin",
        "headrace.version",
    ]
