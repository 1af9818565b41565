"""What comes in through one instance's listener learns nothing of another's, and changes nothing.

Every API at every version asks for another instance's topics, groups, transactional ids and the rest, by the names that
the other instance uses, by their qualified names, and by topic ids. The answers are those about what does not exist.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from headrace.broker.handlers import all_modules
from headrace.broker.instances.fields import SERVED
from headrace.controller.decisions.topics import RequestedTopic
from headrace.instances.definition import Instance
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message, Struct
from headrace.security.acls.filters import BindingFilter, PatternFilter
from headrace.topics import INTERNAL_TOPICS
from tests.asker import Asker
from tests.broker.acl_requests import create_request, delete_request, describe_request, rule
from tests.broker.instances.houses import Houses
from tests.eventually import eventually
from tests.rights.requests import MISSING_ID, Names, about, names

ACME_ID, BETA_ID, CODA_ID = "AAAAAAAAQACAAAAAAAAAAA", "BBBBBBBBQBCBBBBBBBBBBA", "CCCCCCCCQCCCCCCCCCCCCA"
VICTIM, ABSENT = names("hidden"), names("absent")
OPERATORS = names("master")
ALIKE = names("alike")
"""The operator has a topic `acme_…` that metrics without dots could not tell from one of `acme` of this name."""
OF_OTHERS = ("beta.", "acme_", OPERATORS.topic)
OFFSETS = min(INTERNAL_TOPICS)
RANDOM = ("producer_id", "producer_epoch", "member_id", "leader", "session_id")
_UNCOMPARED = (ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_HANDSHAKE)
"""They end the connection, or change what it may do."""
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
}


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Houses]:
    instances = (
        Instance("acme", ACME_ID, admins=("ANONYMOUS",)),
        Instance("beta", BETA_ID, admins=("ANONYMOUS",)),
        Instance("coda", CODA_ID, admins=("ANONYMOUS",)),
    )
    with Houses(tmp_path_factory.mktemp("attack") / "data", instances, SETTINGS) as found:
        with found.ask("beta") as wire:
            furnish(wire, VICTIM)
        operators = [RequestedTopic(OPERATORS.topic), RequestedTopic(f"acme_{ALIKE.missing_topic}")]
        found.run(lambda: found.broker.controller.create_topics(operators))
        yield found


def furnish(wire: Asker, own: Names) -> None:
    """Gives an instance a topic with a record, a group with an offset, a transactional id, a quota, a user, a rule."""
    wish = m.CreateTopicsRequest.CreatableTopic(name=own.topic, num_partitions=1, replication_factor=1)
    made = wire.ask(m.CreateTopicsRequest(topics=[wish], timeout_ms=10_000), 7)
    assert made.topics[0].error_code == 0, made
    for kind, key in ((0, own.group), (1, own.transactional_id)):
        find = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        eventually(partial(_has_coordinator, wire, find), "a coordinator")
    begin = about(ApiKey.INIT_PRODUCER_ID, 4, own)
    eventually(lambda: not wire.ask(begin, 4).error_code, "a transactional id")
    committed = wire.ask(about(ApiKey.OFFSET_COMMIT, 8, own), 8)
    assert committed.topics[0].partitions[0].error_code == 0, committed
    produced = wire.ask(about(ApiKey.PRODUCE, 9, own), 9)
    assert produced.responses[0].partition_responses[0].error_code == 0, produced
    assert (
        not wire.ask(create_request(rule("Topic:hidden-topic", principal="User:hidden-user")), 3).results[0].error_code
    )
    quota = m.AlterClientQuotasRequest
    entry = quota.EntryData(
        entity=[quota.EntityData(entity_type="user", entity_name="hidden-user")],
        ops=[quota.OpData(key="producer_byte_rate", value=1e9)],
    )
    assert not wire.ask(quota(entries=[entry]), 1).entries[0].error_code
    scram = m.AlterUserScramCredentialsRequest
    user = scram.ScramCredentialUpsertion(
        name="hidden-user", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
    )
    assert not wire.ask(scram(upsertions=[user]), 0).results[0].error_code


def _has_coordinator(wire: Asker, find: m.FindCoordinatorRequest) -> bool:
    return not wire.ask(find, 4).coordinators[0].error_code


def qualified(own: Names) -> Names:
    """As the cluster has them."""
    topic, topic_id, *others = own
    return Names(f"beta.{topic}", topic_id, *(f"beta.{each}" for each in others))


def state(houses: Houses) -> Any:
    """Everything of the other instance that a request could have changed."""
    broker = houses.broker

    async def look() -> Any:
        stored = {kind: broker.entities.all(kind) for kind in ("topics", "users", "clients", "groups")}
        authorizer = broker.authorizer
        assert authorizer is not None
        return (
            [each for name, each in broker.metadata.topics.items() if name.startswith(OF_OTHERS)],
            {each.key: each.log.log_end_offset for each in broker.replicas if each.key.topic.startswith("beta.")},
            [each for each in broker.groups.overview()[1] if each.group_id.startswith("beta.")],
            [str(each) for each in broker.groups.positions() if "beta." in str(each)],
            [str(each) for each in broker.transactions.overview()[1] if each.transactional_id.startswith("beta.")],
            {kind: {name: dict(each) for name, each in of.items() if "beta" in name} for kind, of in stored.items()},
            {each: authorizer.rules.entries(each) for each in authorizer.rules.patterns if "beta" in each.name},
        )

    return houses.run(look)


def settled(value: Any) -> Any:
    """A message as text, without what is random in it."""
    if isinstance(value, Struct):
        return {name: "random" if name in RANDOM else settled(getattr(value, name)) for name in value.FIELDS}
    return [settled(each) for each in value] if isinstance(value, list) else value


def every_version() -> list[tuple[ApiKey, int]]:
    return [(each.API_KEY, version) for each in all_modules() for version in each.VERSIONS if each.API_KEY in SERVED]


def renamed(value: Any, replaced: dict[Any, Any]) -> Any:
    """With other names, also within texts."""
    if isinstance(value, dict):
        return {name: renamed(each, replaced) for name, each in value.items()}
    if isinstance(value, list):
        return [renamed(each, replaced) for each in value]
    if isinstance(value, str):
        for before, after in replaced.items():
            if isinstance(before, str):
                value = value.replace(before, after)
        return value
    return replaced.get(value, value) if isinstance(value, bytes) else value


def asked(houses: Houses, key: ApiKey, version: int, request: Message) -> Any:
    """The answer on a connection of its own; None if it was closed."""
    try:
        with houses.ask("acme") as wire:
            return settled(wire.ask(request, version))
    except (ConnectionError, EOFError, AssertionError):
        return None


@pytest.mark.slow
def test_what_others_have_is_answered_like_what_does_not_exist(houses: Houses) -> None:
    before = state(houses)
    metadata = houses.broker.metadata
    victim = VICTIM._replace(topic_id=metadata.topics[f"beta.{VICTIM.topic}"].id)
    operators = OPERATORS._replace(topic_id=metadata.topics[OPERATORS.topic].id)
    pairs = [(victim, ABSENT), (qualified(victim), qualified(ABSENT)), (operators, names("nobody"))]
    pairs.append((ALIKE, names("other")))
    compared = 0
    for key, version in every_version():
        if key in _UNCOMPARED:
            continue
        for hidden, absent in pairs:
            alike = dict(zip(absent, hidden, strict=True))
            unknown = asked(houses, key, version, about(key, version, absent))
            found = asked(houses, key, version, about(key, version, hidden))
            assert renamed(unknown, alike) == renamed(found, {}), (key.name, version, hidden)
            compared += found is not None
    assert compared > 300
    assert state(houses) == before


def everything(key: ApiKey, version: int) -> Iterator[Message]:
    """Requests that name nothing, and so mean everything; or what exists, by other means than a name."""
    match key:
        case ApiKey.METADATA:
            yield m.MetadataRequest(topics=None if version else [])
        case ApiKey.DESCRIBE_TOPIC_PARTITIONS:
            yield m.DescribeTopicPartitionsRequest(response_partition_limit=100)
            cursor = m.DescribeTopicPartitionsRequest.Cursor(topic_name="\0")
            yield m.DescribeTopicPartitionsRequest(response_partition_limit=100, cursor=cursor)
        case ApiKey.LIST_GROUPS | ApiKey.LIST_CONFIG_RESOURCES | ApiKey.DESCRIBE_CLUSTER | ApiKey.API_VERSIONS:
            yield about(key, version, ABSENT)
        case ApiKey.LIST_TRANSACTIONS:
            yield m.ListTransactionsRequest()
            if version >= 2:
                for pattern in (".*", "a)|(.*", ".*)|(?:.*", "(?:beta|acme)\\..*"):
                    yield m.ListTransactionsRequest(transactional_id_pattern=pattern)
        case ApiKey.DESCRIBE_LOG_DIRS:
            yield m.DescribeLogDirsRequest(topics=None)
        case ApiKey.DESCRIBE_CLIENT_QUOTAS:
            yield m.DescribeClientQuotasRequest(components=[])
            component = m.DescribeClientQuotasRequest.ComponentData
            for kind in ("user", "client-id", "ip"):
                for how in (1, 2):
                    found = component(entity_type=kind, match_type=how, match=None)
                    yield m.DescribeClientQuotasRequest(components=[found])
        case ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS:
            yield m.DescribeUserScramCredentialsRequest(users=None)
        case ApiKey.DESCRIBE_ACLS:
            for pattern_type in (1, 3, 4) if version else (3,):
                for wanted in (BindingFilter(), BindingFilter(PatternFilter(name="*"))):
                    request = describe_request(wanted)
                    request.pattern_type_filter = pattern_type
                    yield request
        case ApiKey.DELETE_ACLS:
            for pattern_type in (1, 2, 3, 4) if version else (3,):
                for name in (None, "*", VICTIM.topic, f"beta.{VICTIM.topic}"):
                    deletion = delete_request(BindingFilter(PatternFilter(name=name)))
                    deletion.filters[0].pattern_type_filter = pattern_type
                    yield deletion
        case ApiKey.DESCRIBE_CONFIGS:
            asked = m.DescribeConfigsRequest.DescribeConfigsResource
            for of, resource in ((4, ""), (4, "0"), (8, "0"), (16, "master"), (2, OFFSETS), (2, "../x")):
                yield m.DescribeConfigsRequest(resources=[asked(resource_type=of, resource_name=resource)])
        case ApiKey.CONSUMER_GROUP_HEARTBEAT if version:
            for pattern in (".*", "a)|(.*", ".*)|(?:.*", "(?:beta|acme)\\..*"):
                yield m.ConsumerGroupHeartbeatRequest(
                    group_id="any", member_id=f"m{pattern}", rebalance_timeout_ms=5000,
                    subscribed_topic_names=[], subscribed_topic_regex=pattern, topic_partitions=[],
                )  # fmt: skip


TOLD = (b"hidden", b"beta", b"master", b"__", b"acme", b"coda.", b"/tmp")


def test_who_asks_for_everything_is_told_of_the_own_instance_alone(houses: Houses) -> None:
    before, asked_for = state(houses), set()
    for key, version in every_version():
        for request in everything(key, version):
            with houses.ask("coda") as wire:
                answer = wire.ask(request, version)
            body = answer.encode(version)
            allowed = [each for each in TOLD if each in request.encode(version)]
            assert not [each for each in TOLD if each in body and each not in allowed], (key.name, version, answer)
            asked_for.add(key)
    assert len(asked_for) > 12
    assert state(houses) == before
    with houses.ask("beta") as wire:  # to whom it belongs, all of it is told
        assert [each.name for each in wire.ask(m.MetadataRequest(topics=None), 12).topics] == [VICTIM.topic]
        groups = {each.group_id for each in wire.ask(m.ListGroupsRequest(), 4).groups}
        assert groups == {VICTIM.group}
        listed = wire.ask(m.ListTransactionsRequest(transactional_id_pattern="hid.*"), 2).transaction_states
        assert [each.transactional_id for each in listed] == [VICTIM.transactional_id]
        [told] = wire.ask(describe_request(), 3).resources
        assert (told.resource_name, told.acls[0].principal) == (VICTIM.topic, "User:hidden-user")
        [users] = wire.ask(m.DescribeUserScramCredentialsRequest(users=None), 0).results
        assert users.user == "hidden-user"
        [quota] = wire.ask(m.DescribeClientQuotasRequest(components=[]), 1).entries
        assert quota.entity[0].entity_name == "hidden-user"


def test_the_operators_apis_are_not_there_for_an_instance(houses: Houses) -> None:
    with houses.ask("acme") as wire:
        served = {each.api_key for each in wire.ask(about(ApiKey.API_VERSIONS, 3, ABSENT), 3).api_keys}
    assert served == {int(key) for key in SERVED}
    closed = 0
    for module in all_modules():
        if module.API_KEY not in SERVED and not module.API_KEY.is_own:
            with houses.ask("acme") as wire:
                wire.send(about(module.API_KEY, module.VERSIONS[-1], VICTIM), module.VERSIONS[-1])
                assert wire.socket.recv(1) == b"", module.API_KEY.name
            closed += 1
    assert closed > 20
    assert MISSING_ID not in houses.broker.metadata.snapshot.names_by_id


def test_a_fetch_session_of_another_instance_is_not_there(houses: Houses) -> None:
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = m.FetchRequest.FetchTopic(topic=VICTIM.topic, partitions=[part])
    with houses.ask("beta") as wire, houses.ask("acme") as other:
        opened = wire.ask(m.FetchRequest(max_wait_ms=0, topics=[topic], session_epoch=0), 12)
        assert opened.session_id
        assert opened.responses[0].partitions[0].records
        stolen = other.ask(m.FetchRequest(max_wait_ms=0, session_id=opened.session_id, session_epoch=1), 12)
        missing = other.ask(m.FetchRequest(max_wait_ms=0, session_id=opened.session_id ^ 1, session_epoch=1), 12)
        assert settled(stolen) == settled(missing)
        assert not stolen.responses
