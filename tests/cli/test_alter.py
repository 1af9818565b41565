"""`headrace topic alter|trim` and `headrace config set|unset`: what they change, and what they refuse."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.asker import Asker
from tests.broker.admin_requests import create_topic, own_settings, partition_count, start_offsets
from tests.cli.conftest import Run
from tests.harness import HeadraceServer
from tests.wire import Wire, batch

pytestmark = pytest.mark.slow  # processes of its own


def text(done: subprocess.CompletedProcess[bytes]) -> str:
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture
def asker(cli_server: HeadraceServer) -> Iterator[Asker]:
    with Asker(cli_server.bootstrap) as connection:
        yield connection


@pytest.fixture
def topic(asker: Asker) -> str:
    return create_topic(asker, 2, settings={"retention.ms": "-1"})


def test_a_topic_grows_and_changes_in_one_command(headrace: Run, asker: Asker, topic: str) -> None:
    change = ("topic", "alter", topic, "-p", "4", "-c", "segment.ms=7000", "--unset", "retention.ms")
    assert text(headrace(*change, "--dry-run")) == f"would alter topic {topic}\n"
    assert (partition_count(asker, topic), own_settings(asker, topic)) == (2, {"retention.ms": "-1"})
    assert text(headrace(*change)) == f"altered topic {topic}\n"
    assert (partition_count(asker, topic), own_settings(asker, topic)) == (4, {"segment.ms": "7000"})


def test_settings_are_set_and_unset(headrace: Run, asker: Asker, topic: str) -> None:
    changes = ("segment.ms=7000", "cleanup.policy=compact,delete")
    assert text(headrace("config", "set", "topic", topic, *changes)) == f"changed 2 settings of topic {topic}\n"
    both = {"segment.ms": "7000", "cleanup.policy": "compact,delete"}
    assert own_settings(asker, topic) == {"retention.ms": "-1"} | both
    text(headrace("config", "unset", "topic", topic, *both))
    assert own_settings(asker, topic) == {"retention.ms": "-1"}


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ("topic alter TOPIC -p 1", 1, "1 would not be an increase"),
        ("config set topic TOPIC retention.ms=soon", 2, "retention.ms='soon'"),
        ("config set broker 0 broker.rack=a", 1, "dynamically: [broker.rack]"),
        ("topic trim TOPIC --before end -p 7", 2, "no partition 7"),
    ],
)
def test_what_is_refused_is_one_line(headrace: Run, topic: str, arguments: str, status: int, said: str) -> None:
    done = headrace(*arguments.replace("TOPIC", topic).split())
    error = done.stderr.decode()
    assert said in error
    assert (done.returncode, error.count("\n")) == (status, 1)


def test_the_oldest_records_are_trimmed(headrace: Run, asker: Asker, topic: str, cli_server: HeadraceServer) -> None:
    with Wire(cli_server.bootstrap) as wire:
        for partition in (0, 1):
            wire.produce(topic, batch([b"a", b"b", b"c", b"d"]), partition=partition)
    trim = ("topic", "trim", topic, "--before", "-1", "-p", "0")
    assert text(headrace(*trim, "--dry-run")) == f"{topic}-0: would delete 3 offsets; the log starts at 3\n"
    assert start_offsets(asker, topic, [0]) == {0: 0}
    assert text(headrace(*trim)) == f"{topic}-0: deleted 3 offsets; the log starts at 3\n"
    assert start_offsets(asker, topic, [0, 1]) == {0: 3, 1: 0}
    done = json.loads(text(headrace("topic", "trim", topic, "--before", "end", "--json")))
    assert [(each["partition"], each["from"], each["to"]) for each in done] == [(0, 3, 4), (1, 0, 4)]
    assert start_offsets(asker, topic, [0, 1]) == {0: 4, 1: 4}
