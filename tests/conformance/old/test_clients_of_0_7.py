"""Clients of Kafka 0.7, 0.8.2 and 4.3 on one topic at once: each reads what all wrote."""

from collections.abc import Iterator, Sequence

import pytest

from headrace.client import Admin, NewTopic
from tests.client_07 import ENABLED, Server07, sizes
from tests.conformance.clients import CLIENTS
from tests.conformance.model import FromOffset, Message, Writing
from tests.conformance.old.old_clients import OLD_CLIENTS
from tests.conformance.old.prozess import Prozess, ProzessProgram
from tests.conformance.programs import missing_tools
from tests.conformance.with_programs import ProgramClient
from tests.harness import unused

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients-of-0.7")]


def client(name: str) -> ProgramClient:
    [found] = [each for each in (*CLIENTS, *OLD_CLIENTS) if each.name == name]
    assert isinstance(found, ProgramClient)
    return found


SCALA, JAVA = client("scala 0.8.2.2"), client("java 4.3.1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server07]:
    made = Server07.on(tmp_path_factory.mktemp("clients") / "data")
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def prozess(server: Server07) -> Iterator[Prozess]:
    if reason := missing_tools(ProzessProgram.tools):
        pytest.skip(reason)
    made = Prozess(server.port_07)
    yield made
    made.machine.stop()


def new_topic(server: Server07, **configs: str) -> str:
    name = unused("shared")
    with Admin(server.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1, 1, configs={**ENABLED, **configs})])
    return name


def written(client: ProgramClient, bootstrap: str, topic: str, values: Sequence[bytes], codec: str) -> None:
    messages = [Message(None, value, (), None) for value in values]
    client.produce(bootstrap, topic, messages, Writing(codec=codec))


@pytest.mark.parametrize("stored", ["2.8", "0.9.0"])
def test_each_reads_what_all_wrote(server: Server07, prozess: Prozess, stored: str) -> None:
    for each in (SCALA, JAVA):
        if reason := each.missing():
            pytest.skip(reason)
    topic = new_topic(server, **{"message.format.version": stored})
    wanted: list[bytes] = []
    for codec in ("none", "gzip", "snappy"):
        for writer in ("prozess", "scala", "java"):
            values = [f"{writer} {codec} {number}".encode() for number in range(5)]
            if writer == "prozess":
                prozess.produce(topic, values)
                prozess.read(topic, len(wanted) + 5)  # a produce of 0.7 has no response
            else:
                written(SCALA if writer == "scala" else JAVA, server.bootstrap, topic, values, codec)
            wanted += values
    assert prozess.read(topic, len(wanted)) == (wanted, sizes(wanted))
    assert prozess.offsets(topic) == (0, sizes(wanted))
    middle = sizes(wanted[:22])
    assert prozess.read(topic, len(wanted) - 22, middle) == (wanted[22:], sizes(wanted))
    for each in (SCALA, JAVA):
        found = each.read(server.bootstrap, topic, FromOffset(0), len(wanted))
        assert [consumed.message.value for consumed in found] == wanted, each.name
        assert {consumed.message.key for consumed in found} == {None}


def test_prozess_is_told_the_errors_of_kafka_0_7(server: Server07, prozess: Prozess) -> None:
    topic = new_topic(server)
    prozess.produce(topic, [b"x"])
    prozess.read(topic, 1)
    with pytest.raises(Exception, match="OffsetOutOfRange"):
        prozess.read(topic, 1, 5)
    with pytest.raises(Exception, match="WrongPartition"):
        prozess.read(unused("no-such"), 1)
