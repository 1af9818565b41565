"""Every request passes one gate before its handler, the plain produce too, and is refused with its API's own error."""

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest

from headrace.broker.app import running
from headrace.broker.handlers import all_modules
from headrace.broker.request.dispatch import Dispatcher, Handler, message_name
from headrace.config import parse_broker
from headrace.controller.decisions.topics import RequestedTopic
from headrace.errors import ErrorCode
from headrace.limits import ADMISSIONS_PER_CONNECTION_MAX, TOPICS_CREATED_PER_METADATA_MAX
from headrace.network.bound_listeners import BoundListeners
from headrace.network.server import Server
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message
from headrace.protocol.headers import read_response_header, write_request_header
from headrace.records.format2.batch import Record, encode_batch
from headrace.security.access import ANONYMOUS, Operation, RequestOrigin, ResourceType, Rules
from tests.asker import Asker
from tests.broker.quota_requests import alter
from tests.broker.test_every_version import TOPIC, requests
from tests.eventually import WITHIN_SECONDS
from tests.harness import receive_frame
from tests.wire import Wire

REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
NEWEST_PRODUCE_BY_NAME = 12
WITHOUT_DEMANDS = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
}
UNREFUSED = {
    *WITHOUT_DEMANDS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
"""Those that are answered to everybody, without what the client may not see. Tokens belong to their owners."""
WITHOUT_AN_ERROR = {(ApiKey.DESCRIBE_LOG_DIRS, version) for version in range(3)}
"""Answers that have no place for an error: they are empty, as Apache Kafka's are."""


class Refusing:
    """Rules that refuse some client ids, and some topics; they note what they are asked."""

    heeds_client_ids = True

    def __init__(self, clients: tuple[str, ...] = (), topics: tuple[str, ...] = ()) -> None:
        self.clients, self.topics = clients, topics
        self.asked: list[tuple[RequestOrigin, Operation, ResourceType, str]] = []

    def permits(self, origin: RequestOrigin, operation: Operation, resource: ResourceType, name: str) -> bool:
        self.asked.append((origin, operation, resource, name))
        return origin.client_id not in self.clients and not (resource is ResourceType.TOPIC and name in self.topics)

    def permitted(
        self, origin: RequestOrigin, operations: Sequence[Operation], resource: ResourceType, name: str
    ) -> Sequence[Operation]:
        return [each for each in operations if self.permits(origin, each, resource, name)]

    def permits_any(
        self, origin: RequestOrigin, operation: Operation, resource: ResourceType, *, prefix: str = ""
    ) -> bool:
        return origin.client_id not in self.clients


class Gated:
    """A broker of this process that is asked through a gate whose rules can be changed."""

    def __init__(
        self,
        directory: Path,
        modules: Iterable[ModuleType] = all_modules(),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`modules` handle what comes to `bootstrap`. `settings` are those of the broker itself, whose listeners are
        `addresses`."""
        self._directory, self._modules, self._settings = directory, modules, settings or {}
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_ready.wait(WITHIN_SECONDS), "the broker did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop, self._ends = asyncio.get_running_loop(), asyncio.Event()
        settings = {"listeners": "127.0.0.1:0", "log.dirs": str(self._directory), "offsets.topic.num.partitions": "1"}
        settings["group.initial.rebalance.delay.ms"] = "0"
        config = parse_broker(settings)
        async with running(parse_broker({**settings, **self._settings})) as (self.broker, listeners):
            self.addresses = {each.name: f"127.0.0.1:{each.port}" for each in listeners}
            await self.broker.controller.create_topics([RequestedTopic(TOPIC), RequestedTopic("other")])
            bound = BoundListeners(config)
            self.server = server = Server(config, bound, Dispatcher(self.broker, self._modules))
            (listener,) = bound.listeners
            self.bootstrap = f"127.0.0.1:{listener.port}"
            server.start(self._loop)
            self._is_ready.set()
            await self._ends.wait()
            server.close(self._loop)

    def rule(self, rules: Rules | None) -> None:
        """From now on `rules` hold."""
        self._loop.call_soon_threadsafe(self.broker.admission.rules_changed, rules)


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gated]:
    with Gated(tmp_path_factory.mktemp("gated") / "data") as found:
        yield found


@pytest.fixture
def wire(gated: Gated) -> Iterator[Wire]:
    with Wire(gated.bootstrap) as found:
        yield found
    gated.rule(None)


def ask(wire: Wire | Asker, key: ApiKey, version: int, request: Message, client_id: str | None = "test") -> Any:
    body = request.encode(version)
    head = write_request_header(key, version, 7, client_id)
    wire.socket.sendall((len(head) + len(body)).to_bytes(4, "big") + head + body)
    answer = receive_frame(wire.socket)
    _, pos = read_response_header(answer, key, version)
    return getattr(m, message_name(key, "Response")).decode(version, answer, pos)[0]


def produce(topic: str = TOPIC, acks: int = 1) -> m.ProduceRequest:
    """A plain one."""
    each = m.ProduceRequest.PartitionProduceData(index=0, records=bytes(encode_batch([Record(0, 1, None, b"v", ())])))
    return m.ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[m.ProduceRequest.TopicProduceData(name=topic, partition_data=[each])],
    )


def request_of(key: ApiKey, version: int, ids: Mapping[str, bytes]) -> Message:
    """One that names something."""
    if key is ApiKey.ELECT_LEADERS:
        led = m.ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[0])
        return m.ElectLeadersRequest(topic_partitions=[led], timeout_ms=1000)
    if key is ApiKey.ALTER_CLIENT_QUOTAS:
        return alter({"user": "u"}, producer_byte_rate=1)
    if key is ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
        deletion = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="u", mechanism=1)
        return m.AlterUserScramCredentialsRequest(deletions=[deletion])
    if key is ApiKey.ALTER_REPLICA_LOG_DIRS:
        moved = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])
        to = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path="/elsewhere", topics=[moved])
        return m.AlterReplicaLogDirsRequest(dirs=[to])
    if key is ApiKey.DESCRIBE_PRODUCERS:
        return m.DescribeProducersRequest(
            topics=[m.DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0])]
        )
    if key is ApiKey.TXN_OFFSET_COMMIT:
        partition = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
        return m.TxnOffsetCommitRequest(
            transactional_id="x", group_id="g", producer_id=1, producer_epoch=0, topics=[topic]
        )
    return next(requests(key, version, dict(ids)))


def produced(wire: Wire, client_id: str | None = "test", topic: str = TOPIC) -> ErrorCode:
    answer = ask(wire, ApiKey.PRODUCE, NEWEST_PRODUCE_BY_NAME, produce(topic), client_id)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def end_of(gated: Gated, topic: str = TOPIC) -> int:
    return gated.broker.replicas.leader(topic, 0).log.log_end_offset


def codes(value: object) -> Iterator[int]:
    """Every error code in a message."""
    if isinstance(value, list):
        for each in value:
            yield from codes(each)
    elif type(value).__module__.startswith("headrace.protocol"):
        for name in dir(value):
            each = getattr(value, name)
            if name.endswith("error_code"):
                yield each
            elif isinstance(each, list):
                yield from codes(each)


def test_every_api_demands_something_but_those_that_say_who_the_client_is() -> None:
    assert {module.API_KEY for module in all_modules() if not module.DEMANDS} == WITHOUT_DEMANDS


def test_a_handler_without_a_declaration_is_not_loaded() -> None:
    module = ModuleType("headrace.broker.handlers.of_today")
    module.API_KEY, module.VERSIONS, module.handle = ApiKey.FETCH, range(1), print  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"of_today declares no DEMANDS"):
        Handler(ApiKey.FETCH, range(1), lambda: module).load()


@pytest.mark.parametrize("module", all_modules(), ids=lambda each: each.API_KEY.name)
def test_a_refused_client_is_told_so_by_each_api_at_every_version(module: ModuleType, gated: Gated, wire: Wire) -> None:
    gated.rule(Refusing(clients=("refused",)))
    topics = dict(gated.broker.metadata.snapshot.topics)
    ids: Mapping[str, bytes] = {name: topic.id for name, topic in topics.items() if name == TOPIC}
    for version in module.VERSIONS:
        request = request_of(module.API_KEY, version, ids)
        found = set(codes(ask(wire, module.API_KEY, version, request, "refused")))
        if module.API_KEY in UNREFUSED:
            assert not found & REFUSALS
        else:
            assert found & REFUSALS or (module.API_KEY, version) in WITHOUT_AN_ERROR, (version, found)
    assert gated.broker.metadata.snapshot.topics == topics


def test_a_plain_produce_is_refused_by_its_client_id_and_appends_nothing(gated: Gated, wire: Wire) -> None:
    before = end_of(gated)
    assert produced(wire, "refused") is ErrorCode.NONE
    gated.rule(Refusing(clients=("refused",)))
    assert produced(wire, "refused") is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert produced(wire, "other") is ErrorCode.NONE
    assert produced(wire, None) is ErrorCode.NONE
    assert end_of(gated) == before + 3


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", [3, 8, 9, NEWEST_PRODUCE_BY_NAME, 13])
def test_a_plain_produce_is_refused_by_its_topic(gated: Gated, wire: Wire, version: int, acks: int) -> None:
    gated.rule(Refusing(topics=("other",)))
    before = end_of(gated, "other")
    for topic, code in ((TOPIC, ErrorCode.NONE), ("other", ErrorCode.TOPIC_AUTHORIZATION_FAILED)):
        request = produce(topic, acks)
        topic_id = gated.broker.metadata.snapshot.topics[topic].id
        request.topic_data[0].topic_id = topic_id
        answer = ask(wire, ApiKey.PRODUCE, version, request)
        assert answer.responses[0].partition_responses[0].error_code == code
    assert end_of(gated, "other") == before


def test_a_refused_produce_that_waits_for_no_answer_ends_the_connection(gated: Gated, wire: Wire) -> None:
    gated.rule(Refusing(topics=(TOPIC,)))
    body = produce(acks=0).encode(9)
    head = write_request_header(ApiKey.PRODUCE, 9, 7, "test")
    wire.socket.sendall((len(head) + len(body)).to_bytes(4, "big") + head + body)
    assert wire.socket.recv(100) == b""


def test_a_change_of_the_rules_holds_from_the_next_request_on(gated: Gated, wire: Wire) -> None:
    rules = Refusing()
    gated.rule(rules)
    assert produced(wire) is ErrorCode.NONE
    rules.topics = (TOPIC,)
    assert produced(wire) is ErrorCode.NONE, "the decision is kept"
    gated.rule(rules)
    assert produced(wire) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    rules.topics = ()
    gated.rule(rules)
    assert produced(wire) is ErrorCode.NONE


def test_a_decision_is_made_once_for_a_connection_and_a_client_id(gated: Gated, wire: Wire) -> None:
    rules = Refusing()
    gated.rule(rules)
    for _ in range(3):
        produced(wire, "a")
        ask(wire, ApiKey.PRODUCE, 9, m.ProduceRequest(acks=1, timeout_ms=1, topic_data=produce().topic_data * 2), "a")
    asked = (RequestOrigin(ANONYMOUS, "127.0.0.1", "PLAINTEXT", "a"), Operation.WRITE, ResourceType.TOPIC, TOPIC)
    assert rules.asked == [asked]
    produced(wire, "b")
    assert [origin.client_id for origin, *_ in rules.asked] == ["a", "b"]


def test_a_consumer_loses_a_topic_that_its_fetch_session_has(gated: Gated, wire: Wire) -> None:
    gated.rule(rules := Refusing())
    (request,) = list(requests(ApiKey.FETCH, 12, {}))[:1]
    assert isinstance(request, m.FetchRequest)
    request.session_epoch = 0
    answer = ask(wire, ApiKey.FETCH, 12, request)
    assert answer.session_id
    following = m.FetchRequest(
        replica_id=-1, max_wait_ms=0, max_bytes=1, session_id=answer.session_id, session_epoch=1, topics=[]
    )
    rules.topics = (TOPIC,)
    gated.rule(rules)
    lost = ask(wire, ApiKey.FETCH, 12, following)
    assert (lost.error_code, set(codes(lost))) == (0, {0, ErrorCode.TOPIC_AUTHORIZATION_FAILED})


def test_the_decisions_that_a_connection_keeps_are_bounded(gated: Gated, wire: Wire) -> None:
    gated.rule(rules := Refusing())
    asked = [m.DeleteRecordsRequest.DeleteRecordsTopic(name=f"t{n}") for n in range(ADMISSIONS_PER_CONNECTION_MAX)]
    for _ in range(2):
        ask(wire, ApiKey.DELETE_RECORDS, 2, m.DeleteRecordsRequest(topics=asked))
        assert len(rules.asked) == ADMISSIONS_PER_CONNECTION_MAX
    assert produced(wire) is ErrorCode.NONE
    (connection,) = gated.server.connections
    assert connection.admitted is not None
    assert len(connection.admitted.made) == 1


@pytest.mark.parametrize(
    ("kind", "name", "resource"),
    [(2, TOPIC, ResourceType.TOPIC), (4, "0", ResourceType.CLUSTER)],
    ids=["a topic", "a broker"],
)
def test_settings_are_asked_of_their_topic_or_of_the_cluster(
    gated: Gated, wire: Wire, kind: int, name: str, resource: ResourceType
) -> None:
    gated.rule(rules := Refusing())
    of = m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name)
    ask(wire, ApiKey.DESCRIBE_CONFIGS, 4, m.DescribeConfigsRequest(resources=[of]))
    asked = name if resource is ResourceType.TOPIC else "kafka-cluster"
    assert [each[1:] for each in rules.asked] == [(Operation.DESCRIBE_CONFIGS, resource, asked)]


def test_a_right_on_the_cluster_stands_for_one_on_each_topic_that_is_created(gated: Gated, wire: Wire) -> None:
    class MayCreate(Refusing):
        def permits(self, origin: RequestOrigin, operation: Operation, resource: ResourceType, name: str) -> bool:
            return resource is ResourceType.CLUSTER and operation is Operation.CREATE

    gated.rule(MayCreate())
    wish = m.CreateTopicsRequest.CreatableTopic(name="made", num_partitions=1, replication_factor=1)
    assert ask(wire, ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=[wish])).topics[0].error_code == 0


@pytest.mark.parametrize("version", [3, 13])
def test_a_metadata_request_of_many_topics_creates_none_without_the_right(
    gated: Gated, wire: Wire, version: int
) -> None:
    class MayDescribe(Refusing):
        def permits(self, origin: RequestOrigin, operation: Operation, resource: ResourceType, name: str) -> bool:
            return operation is Operation.DESCRIBE

    gated.rule(MayDescribe())
    names = [f"never-{version}-{n}" for n in range(TOPICS_CREATED_PER_METADATA_MAX + 5)]
    asked = [m.MetadataRequest.MetadataRequestTopic(name=each) for each in names]
    request = m.MetadataRequest(topics=asked, allow_auto_topic_creation=True)
    answer = ask(wire, ApiKey.METADATA, version, request)
    assert {each.name: each.error_code for each in answer.topics} == dict.fromkeys(
        names, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    assert not set(names) & set(gated.broker.metadata.topics)


@pytest.mark.slow
def test_without_rules_nobody_is_refused_but_who_plays_a_broker(gated: Gated, wire: Wire) -> None:
    for module in all_modules():
        version = module.VERSIONS[-1]
        for request in requests(module.API_KEY, version, {}):
            found = set(codes(ask(wire, module.API_KEY, version, request)))
            demanded = {each.operation for each in module.DEMANDS}
            is_of_brokers = demanded == {Operation.CLUSTER_ACTION}
            assert bool(found & REFUSALS) is is_of_brokers, module.API_KEY.name
