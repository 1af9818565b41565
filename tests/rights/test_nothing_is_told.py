"""What a client may not see is not told, and what it may not change stays: each API at every version, with no right and
with each single one.

A topic that exists and one that does not are answered alike, as are groups and transactional ids. By id they are not:
an id cannot be guessed, and Apache Kafka answers TOPIC_AUTHORIZATION_FAILED for one that it knows.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace.broker.handlers import all_modules
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message
from headrace.security.access import ANONYMOUS, CLUSTER_NAME, Operation, ResourceType
from headrace.security.acls.authorizer import AclAuthorizer
from headrace.security.acls.model import Entry, Pattern, PatternType, Permission
from tests.asker import Asker
from tests.broker.test_admission import Gated, ask
from tests.certificates import server_settings
from tests.eventually import eventually
from tests.rights.requests import about, every_version, names, renamed
from tests.rights.secured import HIDDEN, MINE, PROTOCOLS, RIGHTS, SECURITY, connect, rules_of
from tests.rotation import day
from tests.wire import Wire

LISTENERS = ("PLAINTEXT", *PROTOCOLS)
UNKNOWN = names("absent")
FOUND = (HIDDEN.topic.encode(), HIDDEN.group.encode(), HIDDEN.transactional_id.encode())
BY_ID = {ApiKey.PRODUCE: 13, ApiKey.FETCH: 13, ApiKey.OFFSET_COMMIT: 10, ApiKey.OFFSET_FETCH: 10}
BY_ID |= {ApiKey.SHARE_FETCH: 1, ApiKey.SHARE_ACKNOWLEDGE: 1}
"""The first version that names topics by their ids."""
BLIND = [
    "none",
    "denied",
    *(f"only-{right.name}-{kind.name}" for right, kind in RIGHTS if kind is not ResourceType.CLUSTER),
]
"""Principals that may do nothing to what they ask about."""
NAMED_IN_THE_HANDLER = {ApiKey.FETCH}
"""A consumer's topics are those of its session, too: the handler asks."""
_UNCOMPARED = (ApiKey.SASL_AUTHENTICATE, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
"""The one ends the connection, the other makes a random id."""


def has_coordinator(wire: Wire, find: m.FindCoordinatorRequest) -> bool:
    """Whether the coordinator answers."""
    return not ask(wire, ApiKey.FIND_COORDINATOR, 4, find).coordinators[0].error_code


class Told(Gated):
    """A broker with things to hide."""

    certificates: Path

    def hide(self) -> None:
        """Makes them."""
        with Wire(self.bootstrap) as wire:
            wish = m.CreateTopicsRequest.CreatableTopic
            made = [wish(name=each.topic, num_partitions=1, replication_factor=1) for each in (HIDDEN, MINE)]
            ask(wire, ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=made, timeout_ms=10_000))
            for kind, key in ((0, HIDDEN.group), (1, HIDDEN.transactional_id)):
                find = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
                eventually(partial(has_coordinator, wire, find), "a coordinator")
            begin = about(ApiKey.INIT_PRODUCER_ID, 4, HIDDEN)
            eventually(lambda: not ask(wire, ApiKey.INIT_PRODUCER_ID, 4, begin).error_code, "a transactional id")
            committed = ask(wire, ApiKey.OFFSET_COMMIT, 8, about(ApiKey.OFFSET_COMMIT, 8, HIDDEN))
            assert committed.topics[0].partitions[0].error_code == 0
        self.hidden = HIDDEN._replace(topic_id=self.broker.metadata.snapshot.topics[HIDDEN.topic].id)

    def state(self) -> Any:
        """Everything that a request could have changed."""
        broker = self.broker
        return (
            dict(broker.metadata.snapshot.topics),
            {each.key: each.log.log_end_offset for each in broker.replicas},
            broker.groups.overview(),
            sorted(broker.groups.positions(), key=str),
            [str(each) for each in broker.transactions.overview()[1]],
            [dict(broker.entities.all(kind)) for kind in ("topics", "users", "clients", "brokers", "groups")],
        )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    directory = tmp_path_factory.mktemp("told")
    listeners = ",".join(f"{each}://127.0.0.1:0" for each in LISTENERS)
    settings = {**SECURITY, **server_settings(directory), "listeners": listeners}
    with Told(directory / "data", settings=settings) as found:
        found.certificates = directory
        found.hide()
        yield found


def rules_for(principal: str, who: str = ANONYMOUS) -> AclAuthorizer:
    """The rules of a principal, for `who`: clients that are not authenticated."""
    rules = AclAuthorizer()
    by_pattern: dict[Any, list[Any]] = {}
    for pattern, entry in rules_of(principal):
        by_pattern.setdefault(pattern, []).append(entry._replace(principal=who))
    for pattern, entries in by_pattern.items():
        rules.replace(pattern, entries)
    return rules


def everything(key: ApiKey, version: int) -> Iterator[Message]:
    """Requests that name nothing, and so mean everything; or what the group has."""
    match key:
        case ApiKey.METADATA:
            yield m.MetadataRequest(topics=None if version else [])
        case ApiKey.DESCRIBE_TOPIC_PARTITIONS:
            yield m.DescribeTopicPartitionsRequest(response_partition_limit=100)
        case ApiKey.LIST_GROUPS | ApiKey.LIST_TRANSACTIONS | ApiKey.DESCRIBE_ACLS | ApiKey.LIST_CONFIG_RESOURCES:
            yield about(key, version, UNKNOWN)
        case ApiKey.DESCRIBE_LOG_DIRS:
            yield m.DescribeLogDirsRequest(topics=None)
        case ApiKey.OFFSET_FETCH if 2 <= version < 8:
            yield m.OffsetFetchRequest(group_id=MINE.group, topics=None)
        case ApiKey.OFFSET_FETCH if version >= 8:
            yield m.OffsetFetchRequest(
                groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=MINE.group, topics=None)]
            )


@pytest.mark.parametrize("principal", BLIND)
def test_the_hidden_and_the_unknown_are_answered_alike_and_nothing_changes(principal: str, told: Told) -> None:
    """Each principal comes through one listener, which the day decides."""
    hides(told, principal, LISTENERS[(BLIND.index(principal) + day()) % len(LISTENERS)])


@pytest.mark.soak
@pytest.mark.parametrize("listener", LISTENERS)
def test_every_listener_hides_the_same_from_every_principal(listener: str, told: Told) -> None:
    for principal in BLIND:
        hides(told, principal, listener)


def hides(told: Told, principal: str, listener: str) -> None:
    """Holds that a principal who comes through a listener is told nothing, and changes nothing."""
    is_named = listener != "PLAINTEXT"
    told.rule(rules_for(principal, f"User:{principal}" if is_named else ANONYMOUS))
    before = told.state()
    try:
        with connect(told.certificates, told.addresses[listener], listener, principal) as wire:
            for key, version in every_version():
                if key not in _UNCOMPARED:
                    _hides(told, wire, key, version)
    finally:
        told.rule(None)
    assert told.state() == before


def _hides(told: Told, wire: Asker, key: ApiKey, version: int) -> None:
    alike = dict(zip(UNKNOWN, told.hidden, strict=True))
    hidden = ask(wire, key, version, about(key, version, told.hidden))
    unknown = ask(wire, key, version, about(key, version, UNKNOWN))
    assert not any(each in bytes(unknown.encode(version)) for each in FOUND), (key.name, version, unknown)
    if version < BY_ID.get(key, 1 << 15):
        assert renamed(unknown, alike) == hidden, (key.name, version)
    for request in everything(key, version):
        answer = ask(wire, key, version, request)
        assert not any(each in bytes(answer.encode(version)) for each in FOUND), (key.name, version, answer)


def created(wire: Wire, name: str) -> tuple[int, str]:
    wish = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    request = m.CreateTopicsRequest(topics=[wish], timeout_ms=10_000, validate_only=True)
    [answer] = ask(wire, ApiKey.CREATE_TOPICS, 7, request).topics
    return answer.error_code, answer.error_message


def test_a_name_that_collides_with_a_hidden_topic_tells_nothing_of_it(told: Told) -> None:
    """Apache Kafka names the other topic in the error."""
    with Wire(told.bootstrap) as wire:
        wish = m.CreateTopicsRequest.CreatableTopic(name="the.hidden", num_partitions=1, replication_factor=1)
        ask(wire, ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=[wish], timeout_ms=10_000))
        rules = AclAuthorizer()
        cluster = Pattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
        rules.replace(cluster, [Entry(ANONYMOUS, "*", Operation.CREATE, Permission.ALLOW)])
        told.rule(rules)
        try:
            assert created(wire, "the_other")[0] == 0
            refused = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), "Authorization failed."
            assert created(wire, "the_hidden") == refused
            topic = Pattern(ResourceType.TOPIC, "the.hidden", PatternType.LITERAL)
            rules.replace(topic, [Entry(ANONYMOUS, "*", Operation.DESCRIBE, Permission.ALLOW)])
            told.rule(rules)
            code, text = created(wire, "the_hidden")
            assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert "the.hidden" in text
        finally:
            told.rule(None)


@pytest.mark.slow
def test_what_is_refused_never_reaches_a_handler(tmp_path: Path) -> None:
    """So an answer takes no longer, and touches no file and no store, when what it is about exists."""
    reached: set[ApiKey] = set()

    def noting(module: ModuleType) -> ModuleType:
        copied = ModuleType(module.__name__)
        copied.__dict__.update(module.__dict__)

        def handle(ctx: Any, request: Any) -> Any:
            reached.add(module.API_KEY)
            return module.handle(ctx, request)

        copied.handle = handle  # type: ignore[attr-defined]
        return copied

    asked_by_admission = {
        module.API_KEY
        for module in all_modules()
        if module.DEMANDS and any(each.is_explicit and each.by_handler is None for each in module.DEMANDS)
    } - NAMED_IN_THE_HANDLER
    with Told(tmp_path / "data", [noting(each) for each in all_modules()]) as told:
        told.hide()
        told.rule(rules_for("none"))
        reached.clear()
        with Wire(told.bootstrap) as wire:
            for key, version in every_version():
                if key in asked_by_admission and version < BY_ID.get(key, 1 << 15):
                    for named in (told.hidden, UNKNOWN):
                        ask(wire, key, version, about(key, version, named))
                        assert key not in reached, (key.name, version, named)
    assert len(asked_by_admission) > 50
