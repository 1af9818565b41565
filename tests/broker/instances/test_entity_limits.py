"""An instance has a bounded number of users, rules, quotas, group configs and transactional ids; others do not pay."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from headrace.broker.instances import producer_limits
from headrace.errors import ErrorCode, InvalidConfig
from headrace.instances.definition import ENTITY_LIMITS, Instance
from headrace.protocol import messages as m
from headrace.security.access import ResourceType
from headrace.security.acls.filters import BindingFilter, PatternFilter
from headrace.security.acls.model import PatternType
from tests.asker import Asker
from tests.broker.acl_requests import create_request, delete_request, rule
from tests.broker.instances.houses import Houses
from tests.broker.instances.test_abuse import create
from tests.eventually import eventually
from tests.wire import batch

MOST = 2
BYTES = 200_000
POLICY = ErrorCode.POLICY_VIOLATION
SETTINGS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}
ADMINS: dict[str, Any] = {"admins": ("ANONYMOUS",)}


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Houses]:
    limits = {each: MOST for each in ENTITY_LIMITS if each not in ("member_bytes_max", "producers_max")}
    small = Instance("acme", "AAAAAAAAQACAAAAAAAAAAA", member_bytes_max=BYTES, producers_max=10, **ADMINS).altered(
        limits
    )
    instances = (small, Instance("beta", "BBBBBBBBQBCBBBBBBBBBBA", **ADMINS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_limits, "EVERY_S", 0.05)
        with Houses(tmp_path_factory.mktemp("entities") / "data", instances, SETTINGS) as found:
            yield found


def add_users(wire: Asker, *names: str) -> list[tuple[int, str | None]]:
    kind = m.AlterUserScramCredentialsRequest
    users = [
        kind.ScramCredentialUpsertion(name=each, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32)
        for each in names
    ]
    return [(each.error_code, each.error_message) for each in wire.ask(kind(upsertions=users), 0).results]


def remove_user(wire: Asker, name: str) -> int:
    kind = m.AlterUserScramCredentialsRequest
    request = kind(deletions=[kind.ScramCredentialDeletion(name=name, mechanism=1)])
    return int(wire.ask(request, 0).results[0].error_code)


def set_quotas(wire: Asker, *entities: tuple[tuple[str, str], ...], remove: bool = False) -> list[int]:
    kind = m.AlterClientQuotasRequest
    entries = [
        kind.EntryData(
            entity=[kind.EntityData(entity_type=of, entity_name=name) for of, name in entity],
            ops=[kind.OpData(key="producer_byte_rate", value=1e6, remove=remove)],
        )
        for entity in entities
    ]
    return [each.error_code for each in wire.ask(kind(entries=entries), 1).entries]


def configure_groups(wire: Asker, *groups: str, operation: int = 0) -> list[int]:
    kind = m.IncrementalAlterConfigsRequest
    config = kind.AlterableConfig(
        name="consumer.session.timeout.ms", config_operation=operation, value=None if operation else "50000"
    )
    resources = [kind.AlterConfigsResource(resource_type=32, resource_name=each, configs=[config]) for each in groups]
    return [each.error_code for each in wire.ask(kind(resources=resources), 1).responses]


def test_users(houses: Houses) -> None:
    with houses.ask("acme") as wire, houses.ask("beta") as other, Asker(houses.bootstrap) as operator:
        assert [code for code, _ in add_users(wire, "a", "b", "c", "d")] == [0, 0, POLICY, POLICY]
        assert add_users(wire, "e") == [
            (POLICY, "there are 2 users, of at most 2 here: delete some, or ask for a higher limit")
        ]
        assert add_users(wire, "a")[0][0] == 0, "a new password"
        assert {code for code, _ in add_users(other, "a", "b", "c")} == {0}
        assert {code for code, _ in add_users(operator, "a", "b", "c", "acme.more")} == {0}, "the operator may"
        assert remove_user(wire, "a") == 0
        assert add_users(wire, "e")[0][0] == POLICY, "the operator's counts"
        assert remove_user(wire, "more") == 0
        assert add_users(wire, "e")[0][0] == 0


def test_quotas(houses: Houses) -> None:
    some = (("user", "q"),), (("client-id", "q"),), (("user", "q"), ("client-id", "q")), (("user", "r"),)
    with houses.ask("acme") as wire, houses.ask("beta") as other:
        assert set_quotas(wire, *some) == [0, 0, POLICY, POLICY]
        assert set_quotas(wire, *some[:2]) == [0, 0]
        assert set_quotas(other, *some) == [0] * 4
        assert set_quotas(wire, some[1], remove=True) == [0]
        assert set_quotas(wire, some[2]) == [0]


def test_configs_of_groups(houses: Houses) -> None:
    with houses.ask("acme") as wire, houses.ask("beta") as other:
        assert configure_groups(wire, "a", "b", "c") == [0, 0, POLICY]
        assert configure_groups(wire, "a", "b") == [0, 0]
        assert configure_groups(other, "a", "b", "c") == [0, 0, 0]
        assert configure_groups(wire, "a", operation=1) == [0]
        assert configure_groups(wire, "c") == [0]


def test_rules(houses: Houses) -> None:
    def create(wire: Asker, *topics: str) -> list[int]:
        rules = [rule(f"Topic:{each}", principal="User:alice") for each in topics]
        return [each.error_code for each in wire.ask(create_request(*rules), 3).results]

    with houses.ask("acme") as wire, houses.ask("beta") as other, Asker(houses.bootstrap) as operator:
        assert create(wire, "a", "b", "c") == [0, 0, POLICY]
        assert create(wire, "a", "b") == [0, 0], "they are there"
        assert create(wire, "a", "c") == [0, POLICY]
        assert create(other, "a", "b", "c") == [0, 0, 0]
        assert create(operator, "acme.x", "acme.y", "acme.z") == [0, 0, 0], "the operator's are not counted"
        wanted = BindingFilter(PatternFilter(name="a", resource=ResourceType.TOPIC, kind=PatternType.LITERAL))
        [gone] = wire.ask(delete_request(wanted), 3).filter_results
        assert len(gone.matching_acls) == 1
        assert create(wire, "c") == [0]


def test_transactional_ids(houses: Houses) -> None:
    def begin(wire: Asker, name: str) -> int:
        request = m.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000)
        return int(wire.ask(request, 4).error_code)

    retried = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with houses.ask("acme") as wire, houses.ask("beta") as other:
        find = m.FindCoordinatorRequest(key_type=1, coordinator_keys=["any"])
        eventually(lambda: not wire.ask(find, 4).coordinators[0].error_code, "a coordinator")
        for each in (wire, other):
            eventually(partial(lambda wire: begin(wire, "t0") not in retried, each), "the coordinator")
        assert [begin(wire, f"t{number}") for number in range(4)] == [0, 0, POLICY, POLICY]
        assert begin(wire, "t1") == 0, "its next epoch"
        assert [begin(other, f"t{number}") for number in range(4)] == [0] * 4


@pytest.mark.slow
def test_what_members_of_groups_say_of_themselves(houses: Houses) -> None:
    """Members of the classic and of the consumer protocol together; who has left counts no longer."""

    def join(wire: Asker, group: str) -> tuple[int, str]:
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"x" * (BYTES // 4))
        request = m.JoinGroupRequest(
            group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id="",
            protocol_type="any", protocols=[protocol],
        )  # fmt: skip
        answer = wire.ask(request, 3)
        return answer.error_code, answer.member_id

    def heartbeat(wire: Asker, group: str) -> int:
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=group, member_id="member", rebalance_timeout_ms=5000, topic_partitions=[],
            subscribed_topic_names=[f"a-topic-with-a-long-name-{number}" for number in range(2000)],
        )  # fmt: skip
        return int(wire.ask(request, 1).error_code)

    def leave(wire: Asker, group: str) -> int:
        request = m.ConsumerGroupHeartbeatRequest(group_id=group, member_id="member", member_epoch=-1)
        return int(wire.ask(request, 1).error_code)

    retried = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with houses.ask("acme") as wire, houses.ask("beta") as other:
        find = m.FindCoordinatorRequest(key_type=0, coordinator_keys=["any"])
        eventually(lambda: not wire.ask(find, 4).coordinators[0].error_code, "a coordinator")
        eventually(lambda: join(other, "first")[0] not in retried, "the coordinator")
        members = {}
        for number in range(3):

            def is_in(group: str = f"g{number}") -> bool:
                code, members[group] = join(wire, group)
                assert code in (0, POLICY), "what has just come may count twice for a second"
                return code == 0

            eventually(is_in, "room for three")
        assert join(wire, "over")[0] == POLICY
        assert heartbeat(wire, "over") == POLICY
        assert leave(wire, "over") == ErrorCode.GROUP_ID_NOT_FOUND, "who leaves needs no room"
        assert join(other, "over")[0] == 0
        assert heartbeat(other, "newer") == 0
        for group, member in members.items():
            wire.ask(m.LeaveGroupRequest(group_id=group, member_id=member), 2)
        eventually(lambda: heartbeat(wire, "newer") == 0, "the members to be counted")


def test_producers_are_forgotten_and_not_refused(houses: Houses) -> None:
    def produce(wire: Asker, producer_id: int, sequence: int = 0) -> int:
        part = m.ProduceRequest.PartitionProduceData(
            index=0, records=batch([b"x"], producer=(producer_id, 0, sequence), timestamp_ms=int(time.time() * 1000))
        )
        data = m.ProduceRequest.TopicProduceData(name="produced", partition_data=[part])
        answer = wire.ask(m.ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data]), 9)
        return int(answer.responses[0].partition_responses[0].error_code)

    logs = {}
    with houses.ask("acme") as wire, houses.ask("beta") as other:
        for name, each in (("acme", wire), ("beta", other)):
            assert create(each, ("produced", 1)) == [0]
            logs[name] = next(p.log for p in houses.broker.replicas if p.key.topic == f"{name}.produced")
            assert {produce(each, number) for number in range(30)} == {0}
        assert produce(wire, 29, 1) == 0
        assert produce(wire, 30) == 0
        eventually(lambda: len(logs["acme"].producers.entries) <= 10, "the oldest to be forgotten")
        assert 0 not in logs["acme"].producers.entries
        assert produce(wire, 0, 1) == 0, "it goes on"
        assert produce(wire, 29, 1) == 0, "known as a batch that was sent again"
        assert len(logs["beta"].producers.entries) == 30


def test_subscriptions_of_client_metrics_are_the_operators(houses: Houses) -> None:
    kind = m.IncrementalAlterConfigsRequest
    config = kind.AlterableConfig(name="interval.ms", config_operation=0, value="1000")
    resource = kind.AlterConfigsResource(resource_type=16, resource_name="mine", configs=[config])
    with houses.ask("acme") as wire:
        answer = wire.ask(kind(resources=[resource]), 1).responses[0]
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not houses.broker.entities.all("client-metrics")


def test_there_are_limits_unless_the_operator_takes_them_away() -> None:
    given = Instance("acme", "id")
    assert all(getattr(given, each) for each in ENTITY_LIMITS)
    assert given.altered({"users_max": None}).users_max is None
    with pytest.raises(InvalidConfig, match="users_max of an instance cannot be 0"):
        given.altered({"users_max": 0})
