"""A request that a broker has passed on for an instance's client, and that arrives when the instance is gone, does
nothing: neither to a topic of no instance, nor to one of the next instance of the name."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.request.forwarded import carried_out, forwarded_for
from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.operations.instance_admin import InstanceAdmin
from headrace.errors import ErrorCode, KafkaError
from headrace.instances.definition import Instance, InstanceState
from headrace.protocol import messages as m
from headrace.testing import Broker
from tests.asker import Asker
from tests.eventually import eventually

NAME, TOPIC = "acme", "acme.orders"


def create() -> m.CreateTopicsRequest:
    topic = m.CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    return m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def grow() -> m.CreatePartitionsRequest:
    topic = m.CreatePartitionsRequest.CreatePartitionsTopic(name=TOPIC, count=2, assignments=None)
    return m.CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)


def delete() -> m.DeleteTopicsRequest:
    return m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name=TOPIC)], timeout_ms=10_000)


def codes(broker: Broker, client_id: str) -> list[ErrorCode]:
    """What a broker is told that asks for a new topic, for another partition of it, and for its end."""
    with Asker(broker.bootstrap, client_id) as asker:
        (created,) = asker.ask(create(), 7).topics
        (grown,) = asker.ask(grow(), 3).results
        (deleted,) = asker.ask(delete(), 6).responses
    return [ErrorCode(each.error_code) for each in (created, grown, deleted)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.mark.slow
def test_a_request_of_an_instance_that_is_gone_does_nothing(broker: Broker) -> None:
    refused = [ErrorCode.NOT_CONTROLLER] * 3
    with Cluster(broker.bootstrap) as cluster:
        admin, topics = InstanceAdmin(cluster), Admin(cluster)
        first = admin.create_instance(NAME, {"port": None}).instance
        of_first = forwarded_for(NAME, first.id)
        assert codes(broker, of_first) == [ErrorCode.NONE] * 3
        admin.delete_instance(NAME, with_data=True, grace_ms=60_000)
        assert codes(broker, of_first) == refused, "it may be removed at any time"
        admin.delete_instance(NAME, with_data=True, grace_ms=0)
        eventually(lambda: not admin.describe_instances(), "the end of the instance")
        assert codes(broker, of_first) == refused
        assert [each.name for each in topics.list_topics()] == []

        second = admin.create_instance(NAME, {"port": None}).instance
        topics.create_topics([NewTopic(TOPIC, 1)])
        assert codes(broker, of_first) == refused
        (left,) = topics.list_topics()
        assert (left.name, len(left.partitions)) == (TOPIC, 1)
        assert codes(broker, forwarded_for(NAME, second.id))[1:] == [ErrorCode.NONE] * 2
        admin.delete_instance(NAME, with_data=True, grace_ms=0)


def context(client_id: str | None, known: Instance | None) -> Any:
    services = SimpleNamespace(instances={NAME: known} if known else {}, topic_requests=Counter())
    return SimpleNamespace(client_id=client_id, services=services)


async def test_an_instance_is_not_removed_while_the_controller_carries_out_a_request_of_it() -> None:
    ctx = context(forwarded_for(NAME, "id"), Instance(NAME, "id"))
    for error in (None, KafkaError("no"), asyncio.CancelledError()):
        try:
            with carried_out(ctx):
                assert ctx.services.topic_requests == {NAME: 1}
                if error is not None:
                    raise error
        except (KafkaError, asyncio.CancelledError) as raised:
            assert raised is error
        assert not ctx.services.topic_requests


@pytest.mark.parametrize("client_id", [None, "", "asker", "headrace-instances/acme/id"])
def test_other_clients_name_no_instance(client_id: str | None) -> None:
    ctx = context(client_id, None)
    with carried_out(ctx):
        assert not ctx.services.topic_requests


@pytest.mark.parametrize(
    "known",
    [
        None,
        Instance(NAME, "another"),
        *(Instance(NAME, "id", state=each) for each in InstanceState if each.value != "active"),
    ],
)
def test_an_instance_that_is_not_served_is_not_there(known: Instance | None) -> None:
    with pytest.raises(KafkaError) as refused, carried_out(context(forwarded_for(NAME, "id"), known)):
        pytest.fail("it is carried out")
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
