"""Brokers that the client's tests run against: ours, and Apache Kafka where Java and Maven are."""

import time
from itertools import count

import pytest

from tests.harness import HeadraceServer

_numbers = count()

BROKERS = [
    "headrace",
    pytest.param("apache-kafka", marks=[pytest.mark.peer, pytest.mark.slow, pytest.mark.xdist_group("apache-kafka")]),
]


def topic_name(purpose: str) -> str:
    """A topic's name that no other test uses."""
    return f"{purpose}-{time.time_ns()}-{next(_numbers)}"


def address_of(request: pytest.FixtureRequest) -> str:
    """The address of the broker that the test's parameter names."""
    if request.param == "apache-kafka":
        address: str = request.getfixturevalue("apache_kafka")
        return address
    server: HeadraceServer = request.getfixturevalue("shared_headrace")
    return server.bootstrap
