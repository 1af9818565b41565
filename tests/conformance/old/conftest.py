"""Topics that are stored in old formats, and everybody on them."""

import os
from typing import cast

import pytest

from tests.conformance.clients import CLIENTS
from tests.conformance.conftest import end_of_topic, new_name
from tests.conformance.model import Client
from tests.conformance.old.crowd import Crowd, Place, gather
from tests.conformance.old.old_clients import OLD_CLIENTS, OldKafkaPython, OldProgram
from tests.conformance.with_programs import ProgramClient
from tests.wire import Wire

FORMAT_VERSIONS = {2: "2.8", 1: "0.10.2", 0: "0.9.0"}
"""A `message.format.version` for each format."""

OF_TODAY = ("confluent-kafka", "aiokafka", "headrace", "java 4.3.1", "java 2.8.2", "franz-go")


@pytest.fixture(scope="session")
def topics(bootstrap: str) -> dict[Place, str]:
    """Topics in each message format; in the newest only, where the broker under test no longer stores others."""
    magics = [2] if os.environ.get("HEADRACE_CONFORMANCE_BOOTSTRAP") else FORMAT_VERSIONS
    return {Place(magic, lz4): _topic(bootstrap, magic) for magic in magics for lz4 in (False, True)}


@pytest.fixture(scope="session")
def crowd(bootstrap: str, topics: dict[Place, str]) -> Crowd:
    """Everybody who is installed, old and new, has written to and read from the topics."""
    clients: list[Client] = [each for each in CLIENTS if each.name in OF_TODAY]
    clients += [cast(Client, each) for each in OLD_CLIENTS]
    clients = [each for each in clients if not each.missing()]
    for each in clients:
        if isinstance(each, ProgramClient):
            each.prepare()
    return gather(bootstrap, topics, clients)


@pytest.fixture
def old_client(cell: tuple[Client, str]) -> OldProgram | OldKafkaPython:
    """The client under test, with what only old clients tell."""
    return cast(OldProgram | OldKafkaPython, cell[0])


def _topic(bootstrap: str, magic: int) -> str:
    name = new_name()
    settings = {"retention.ms": "-1"} | ({} if magic == 2 else {"message.format.version": FORMAT_VERSIONS[magic]})
    with Wire(bootstrap) as wire:
        assert wire.create_topic(name, 1, settings) == 0
    end_of_topic(bootstrap, name)
    return name
