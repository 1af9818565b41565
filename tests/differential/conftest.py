"""One `headrace serve` and one Apache Kafka with the same settings, for all scenarios of a session.

HEADRACE_DIFFERENTIAL_KAFKA=HOST:PORT    asks an Apache Kafka that runs already
HEADRACE_DIFFERENTIAL_ANSWERS=FILE       appends what Apache Kafka answers to a file
"""

import os
from collections.abc import Iterator

import pytest

from headrace.protocol import messages as m
from tests.differential.conversation import Conversation
from tests.differential.scenario import Brokers, served_versions
from tests.harness import HeadraceServer
from tests.peers import kafka

KAFKA = "HEADRACE_DIFFERENTIAL_KAFKA"


@pytest.fixture(scope="session")
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Both brokers, whose group and transaction coordinators answer."""
    theirs = os.environ.get(KAFKA) or str(request.getfixturevalue("apache_kafka"))
    server = HeadraceServer(
        tmp_path_factory.mktemp("differential") / "data", {**kafka.SHARED_SETTINGS, "broker.id": "1"}
    )
    server.start()
    try:
        pair = Brokers(server.bootstrap, theirs, served_versions(server.bootstrap), served_versions(theirs))
        for bootstrap, has_transactions in ((server.bootstrap, 24 in pair.ours), (theirs, True)):
            _warm_up(bootstrap, pair, has_transactions)
        yield pair
    finally:
        server.stop()


def _warm_up(bootstrap: str, pair: Brokers, has_transactions: bool) -> None:
    """Internal topics are made by the first question for a coordinator."""
    with Conversation(bootstrap, __file__, None, -1, "warm-up", pair.theirs) as ask:
        for kind in range(2 if has_transactions else 1):
            request = m.FindCoordinatorRequest(
                key_type=kind, coordinator_keys=[f"warm-up-{number}" for number in range(20)]
            )
            ask.settle(lambda found: all(each.error_code == 0 for each in found.coordinators), request, 4)
        for number in range(20 if has_transactions else 0):
            first = m.InitProducerIdRequest(transactional_id=f"warm-up-{number}", transaction_timeout_ms=1)
            ask.settle(lambda found: found.error_code == 0, first, 4)
