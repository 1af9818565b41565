"""An instance does not go while a request of its clients may still make a topic, and none is begun or repeated then."""

import asyncio
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.cluster.controller_link import ControllerLink
from headrace.broker.instances.state_removal import remove_state
from headrace.broker.instances.topics import InstanceTopics
from headrace.broker.instances.view import View
from headrace.config import TopicConfig
from headrace.controller.controller_epoch import NotController
from headrace.controller.decisions.add_partitions import NewPartitions
from headrace.controller.decisions.topics import RequestedTopic
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.instances.definition import Instance
from headrace.metadata.metadata_cache import MetadataCache
from headrace.network.peers.peers import PeerUnreachable
from headrace.protocol import messages as m

NAME = "acme"
TOPIC = f"{NAME}.orders"


class Controller:
    """Another broker's, which is asked, and never answers."""

    def __init__(self) -> None:
        self.is_wanted: Callable[[], bool] | None = None

    async def elsewhere(self, *_: object, **__: object) -> Any:
        raise NotController

    create_topics = create_partitions = delete_topics = elsewhere

    async def send(self, *_: object, is_wanted: Callable[[], bool], client_id: str, **__: object) -> Any:
        assert client_id == "headrace-instance/acme/id"
        await self._ask(is_wanted)

    async def make(self, _topics: object, is_wanted: Callable[[], bool], client_id: str) -> Any:
        assert client_id == "headrace-instance/acme/id"
        await self._ask(is_wanted)

    async def _ask(self, is_wanted: Callable[[], bool]) -> None:
        self.is_wanted = is_wanted
        await asyncio.Event().wait()


class Served:
    """A broker, as far as it is asked, that serves one instance."""

    def __init__(self) -> None:
        self.controller, nothing = Controller(), (ErrorCode.NONE, ())
        self.services: Any = SimpleNamespace(
            topic_requests=Counter(),
            controller=self.controller,
            topic_creation=self.controller,
            replication=SimpleNamespace(link=self.controller),
            settings=SimpleNamespace(current=SimpleNamespace(topic_defaults=TopicConfig())),
            now_ms=lambda: 0,
            metadata=MetadataCache(),
            replicas=(),
            groups=SimpleNamespace(overview=lambda prefix: nothing),
            transactions=SimpleNamespace(overview=lambda prefix: nothing, remove_with=lambda prefix: 0),
        )
        self.view = View(Instance(NAME, "id"), self.services.metadata, (), {})
        self.topics = InstanceTopics(self.view, cast(Any, self.services))

    async def found(self) -> int:
        """What the controller is told that the broker still has of the instance."""
        return (await remove_state(self.services, NAME)).found


REQUESTS: dict[str, Callable[[InstanceTopics], Any]] = {
    "create": lambda topics: topics.create_topics([RequestedTopic(TOPIC, 1, 1)]),
    "create by use": lambda topics: topics.make([RequestedTopic(TOPIC, 1, 1)]),
    "grow": lambda topics: topics.create_partitions([NewPartitions(TOPIC, 2, None)]),
    "delete": lambda topics: topics.delete_topics([TOPIC]),
}


@pytest.mark.parametrize("kind", REQUESTS)
async def test_a_request_under_way_is_something_that_is_left(kind: str) -> None:
    served = Served()
    assert await served.found() == 0
    request = asyncio.ensure_future(REQUESTS[kind](served.topics))
    while served.controller.is_wanted is None:
        await asyncio.sleep(0)
        assert not request.done() or request.result()
    assert await served.found() == 1
    request.cancel()
    await asyncio.wait([request])
    assert await served.found() == 0


@pytest.mark.parametrize("kind", REQUESTS)
async def test_a_request_is_not_repeated_once_the_instance_is_not_served(kind: str) -> None:
    served = Served()
    request = asyncio.ensure_future(REQUESTS[kind](served.topics))
    while served.controller.is_wanted is None:
        await asyncio.sleep(0)
        assert not request.done() or request.result()
    assert served.controller.is_wanted()
    served.view.is_closed = True
    assert not served.controller.is_wanted()
    request.cancel()
    await asyncio.wait([request])


@pytest.mark.parametrize("kind", REQUESTS)
async def test_no_request_begins_once_the_instance_is_not_served(kind: str) -> None:
    served = Served()
    served.view.is_closed = True
    with pytest.raises(InvalidRequest, match="instance acme is gone"):
        await REQUESTS[kind](served.topics)
    assert await served.found() == 0


async def test_a_request_that_is_not_wanted_any_more_is_not_sent_to_the_controller_again() -> None:
    sent = 0

    class Peers:
        async def send(self, *_: object, **__: object) -> Any:
            nonlocal sent
            sent += 1
            raise PeerUnreachable("it is down")

    peers: Any = Peers()
    metadata: Any = SimpleNamespace(controller_id=1)
    addresses: Any = SimpleNamespace(address_of=lambda broker: SimpleNamespace(id=broker))
    link = ControllerLink(metadata, addresses, peers, asyncio.get_running_loop())
    with pytest.raises(KafkaError, match="it is down"):
        await link.send(m.CreateTopicsRequest(), m.CreateTopicsResponse, is_wanted=lambda: sent < 2)
    assert sent == 2
