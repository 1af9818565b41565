"""Instances over the wire: created, described, altered, refused, and deleted with everything that is theirs."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from headrace.client.consumer.consumer import Consumer
from headrace.client.consumer.settings import ConsumerSettings
from headrace.client.core.cluster import Cluster
from headrace.client.operations.acl_admin import AclAdmin
from headrace.client.operations.admin import Admin
from headrace.client.operations.group_admin import GroupAdmin
from headrace.client.operations.instance_admin import InstanceAdmin
from headrace.client.operations.quota_admin import CLIENT_ID, USER, QuotaAdmin
from headrace.client.operations.transaction_admin import TransactionAdmin, TransactionFilter
from headrace.client.operations.user_admin import UserAdmin
from headrace.client.producer.producer import Producer, ProducerSettings
from headrace.errors import ErrorCode, KafkaError
from headrace.instances.definition import InstanceState
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.security.access import Operation, ResourceType
from headrace.security.acls.model import Binding, Entry, Pattern, PatternType, Permission
from headrace.testing import Broker
from headrace.testing.security import Security
from headrace.types import TopicPartition
from tests.eventually import eventually
from tests.harness import free_ports

pytestmark = pytest.mark.slow

R = TypeVar("R", bound=Message)

NO_LISTENER = {"port": None}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"delegation.token.secret.key": "the secret of the cluster"}
    with Broker(security=Security("SASL_PLAINTEXT", acls=True), settings=settings) as started:
        yield started


def client_of(broker: Broker, user: str) -> Cluster:
    return Cluster(broker.bootstrap, broker.client_settings(user))


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with client_of(broker, "admin") as opened:
        yield opened


@pytest.fixture
def admin(cluster: Cluster) -> InstanceAdmin:
    return InstanceAdmin(cluster)


def names(admin: InstanceAdmin) -> list[str]:
    return [each.instance.name for each in admin.describe_instances()]


def eventually_gone(admin: InstanceAdmin, name: str) -> None:
    eventually(lambda: name not in names(admin), f"the end of instance {name}", state=admin.describe_instances)


def code_of(failed: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return failed.value.code


def test_an_instance_is_created_described_altered_and_deleted(admin: InstanceAdmin) -> None:
    made = admin.create_instance("acme", {**NO_LISTENER, "bytes_in": 1000, "allow": ["10.0.0.0/8"]}).instance
    assert (made.name, made.bytes_in, made.port, made.state) == ("acme", 1000, None, InstanceState.ACTIVE)
    [found] = admin.describe_instances(["acme"])
    assert (found.instance, found.topics, found.partitions, found.bootstrap) == (made, 0, 0, "")
    assert admin.await_listeners("acme") == found
    altered = admin.alter_instance("acme", {"bytes_in": None, "capacity": 1 << 40}).instance
    assert (altered.bytes_in, altered.capacity, altered.id, altered.allow) == (None, 1 << 40, made.id, made.allow)
    assert admin.delete_instance("acme").instance.state is InstanceState.DELETING
    eventually_gone(admin, "acme")


def test_a_dry_run_decides_and_changes_nothing(admin: InstanceAdmin) -> None:
    assert admin.create_instance("acme", NO_LISTENER, validate_only=True).instance.name == "acme"
    assert names(admin) == []
    admin.create_instance("acme", NO_LISTENER)
    assert admin.alter_instance("acme", {"bytes_in": 5}, validate_only=True).instance.bytes_in == 5
    assert admin.delete_instance("acme", validate_only=True).instance.state is InstanceState.DELETING
    with pytest.raises(KafkaError, match="an instance called acme exists"):
        admin.create_instance("acme", validate_only=True)
    [found] = admin.describe_instances()
    assert (found.instance.bytes_in, found.instance.state) == (None, InstanceState.ACTIVE)
    admin.delete_instance("acme")
    eventually_gone(admin, "acme")


def test_unknown_names_and_bad_definitions_are_refused_with_their_reason(admin: InstanceAdmin) -> None:
    for call in (
        lambda: admin.alter_instance("nobody", {"bytes_in": 1}),
        lambda: admin.delete_instance("nobody"),
        lambda: admin.delete_instance("../nobody\0"),
        lambda: admin.describe_instances(["nobody"]),
    ):
        with pytest.raises(KafkaError, match="no instance called") as failed:
            call()
        assert code_of(failed) is ErrorCode.RESOURCE_NOT_FOUND
    for name, fields in (("A", {}), ("a/b", {}), ("x", {"bytes_in": -1}), ("x", {"brokers": [77]}), ("x", {"no": 1})):
        with pytest.raises(KafkaError) as failed:
            admin.create_instance(name, fields)
        assert code_of(failed) is ErrorCode.INVALID_CONFIG
    assert names(admin) == []


@pytest.mark.parametrize(
    ("action", "document"),
    [
        (0, ""),
        (0, "[]"),
        (0, "null"),
        (0, "{"),
        (0, "[" * 100_000),
        (0, '{"bytes_in": 1e999}'),
        (0, json.dumps({"deny": ["x" * (1 << 20)]})),
        (3, "{}"),
        (-1, "{}"),
    ],
)
def test_documents_that_are_none_are_refused(cluster: Cluster, action: int, document: str) -> None:
    alteration = m.AlterInstancesRequest.Alteration(name="acme", action=action, document=document)
    request = m.AlterInstancesRequest(alterations=[alteration])
    answer = cluster.call_any(request, m.AlterInstancesResponse, cluster.deadline())
    [result] = answer.results
    assert answer.error_code == 0
    assert result.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)
    assert result.error_message
    assert len(result.error_message) < 1000


def test_only_those_who_may_alter_the_cluster_alter_instances(broker: Broker, admin: InstanceAdmin) -> None:
    with client_of(broker, "alice") as cluster:
        alice = InstanceAdmin(cluster)
        for call in (
            lambda: alice.create_instance("mine", NO_LISTENER),
            lambda: alice.delete_instance("mine"),
            lambda: alice.describe_instances(),
            lambda: alice.describe_instances(["nobody"]),
        ):
            with pytest.raises(KafkaError) as failed:
                call()
            assert code_of(failed) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        removal = m.RemoveInstanceStateRequest(name="mine")
        answer = ask(cluster, removal, m.RemoveInstanceStateResponse)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert names(admin) == []


def test_own_apis_are_served_and_not_advertised(cluster: Cluster) -> None:
    cluster.refresh([])
    assert cluster._control is not None
    assert max(cluster._control.versions.ranges) < 10_000


def test_an_instance_with_topics_is_deleted_with_its_data_only(cluster: Cluster, admin: InstanceAdmin) -> None:
    admin.create_instance("acme", NO_LISTENER)
    Admin(cluster).create_topic("acme.orders", 3)
    with pytest.raises(KafkaError, match=r"has 1 topics, such as acme\.orders") as failed:
        admin.delete_instance("acme")
    assert code_of(failed) is ErrorCode.POLICY_VIOLATION
    deleted = admin.delete_instance("acme", with_data=True)
    assert (deleted.topics, deleted.partitions) == (1, 3)
    with pytest.raises(KafkaError, match="its name is not free yet"):
        admin.create_instance("acme", NO_LISTENER)
    assert admin.alter_instance("acme", {"state": "active"}).instance.deleted_at_ms is None
    [found] = admin.describe_instances(["acme"])
    assert (found.instance.state, found.topics) == (InstanceState.ACTIVE, 1)
    admin.delete_instance("acme", with_data=True, grace_ms=0)
    eventually_gone(admin, "acme")
    assert Admin(cluster).list_topics() == []


def test_the_capacity_is_not_set_below_what_is_stored_unless_forced(cluster: Cluster, admin: InstanceAdmin) -> None:
    admin.create_instance("acme", {**NO_LISTENER, "capacity": 1 << 20})
    Admin(cluster).create_topic("acme.orders", 1)
    with Producer(addresses(cluster), None, cluster.settings) as producer:
        producer.send("acme.orders", bytes(range(256)) * 40)
    stored = eventually(lambda: admin.describe_instances(["acme"])[0].stored, "the bytes to be counted")
    with pytest.raises(KafkaError, match=rf"capacity of instance acme cannot be 10000: it has {stored} bytes"):
        admin.alter_instance("acme", {"capacity": 10_000})
    assert admin.alter_instance("acme", {"capacity": 10_000}, force=True).instance.capacity == 10_000
    admin.delete_instance("acme", with_data=True, grace_ms=0)
    eventually_gone(admin, "acme")


def test_limits_are_quotas_of_an_entity_of_the_type_instance(cluster: Cluster, admin: InstanceAdmin) -> None:
    acme, quotas = {"instance": "acme"}, QuotaAdmin(cluster)
    admin.create_instance("acme", {**NO_LISTENER, "bytes_out": 9})
    quotas.alter_quotas(acme, {"producer_byte_rate": 5.0, "consumer_byte_rate": None})
    quotas.alter_quotas(acme, {"producer_byte_rate": 6.0}, validate_only=True)
    [found] = admin.describe_instances()
    assert (found.instance.bytes_in, found.instance.bytes_out) == (5, None)
    assert quotas.describe_quotas(acme) == {"producer_byte_rate": 5.0}
    assert [each.entity for each in quotas.list_quotas(("instance",))] == [acme]
    assert quotas.list_quotas() == []
    for entity, values, words in (
        (acme, {"producer_byte_rate": 0.0}, "greater than 0"),
        (acme, {"producer_byte_rate": 1.5}, "fractional"),
        (acme, {"request_percentage": 1.0}, "Invalid configuration key request_percentage"),
        ({"instance": "nobody"}, {"producer_byte_rate": 1.0}, "no instance called 'nobody'"),
        ({"instance": None}, {"producer_byte_rate": 1.0}, "no default quota"),
        ({"instance": "acme", "user": "u"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type"),
    ):
        with pytest.raises(KafkaError, match=words):
            quotas.alter_quotas(entity, values)
    admin.delete_instance("acme")
    eventually_gone(admin, "acme")


def test_the_limits_are_not_quotas_to_its_own_clients(broker: Broker, cluster: Cluster, admin: InstanceAdmin) -> None:
    admin.create_instance("acme", {"bytes_in": 1000, "admins": ["ANONYMOUS"]})
    with Cluster(admin.await_listeners("acme").bootstrap) as tenant:
        quotas = QuotaAdmin(tenant)
        with pytest.raises(KafkaError, match="Custom entity type 'instance' not supported"):
            quotas.list_quotas(("instance",))
        with pytest.raises(KafkaError):
            quotas.alter_quotas({"instance": "acme"}, {"producer_byte_rate": 1e9})
    assert admin.describe_instances()[0].instance.bytes_in == 1000
    admin.delete_instance("acme")
    eventually_gone(admin, "acme")


def addresses(cluster: Cluster) -> str:
    return ",".join(map(str, cluster.bootstrap))


def test_topics_of_the_name_are_adopted_only_if_it_is_said(cluster: Cluster, admin: InstanceAdmin) -> None:
    Admin(cluster).create_topic("acme.before", 1)
    with pytest.raises(KafkaError, match=r"topics such as acme\.before have names of instance acme"):
        admin.create_instance("acme", NO_LISTENER)
    assert admin.create_instance("acme", NO_LISTENER, adopt=True).topics == 1
    admin.delete_instance("acme", with_data=True, grace_ms=0)
    eventually_gone(admin, "acme")


def test_users_groups_and_rules_of_the_name_are_adopted_only_if_it_is_said(
    cluster: Cluster, admin: InstanceAdmin
) -> None:
    """An operator who called somebody `first.last` would hand him to the instance `first`, with his password."""
    Admin(cluster).create_topic("plain", 1)
    UserAdmin(cluster).set_password("first.last", "secret", ("SCRAM-SHA-256",))
    QuotaAdmin(cluster).alter_quotas({CLIENT_ID: "first.c"}, {"producer_byte_rate": 7.0})
    AclAdmin(cluster).create_acls([allow("User:eve", Pattern(ResourceType.TOPIC, "first.t"))])
    GroupAdmin(cluster).commit("first.app", {TopicPartition("plain", 0): 0})
    for dry_run in (True, False):
        with pytest.raises(KafkaError, match="have names of instance first: remove them") as refused:
            admin.create_instance("first", NO_LISTENER, validate_only=dry_run)
        for what in (
            "1 users with passwords or quotas, such as first.last,",
            "1 client ids with quotas, such as first.c,",
            "1 resources with access control lists, such as first.t,",
            "1 groups and transactional ids",
        ):
            assert what in refused.value.message
    admin.create_instance("firs", NO_LISTENER)
    admin.create_instance("first", NO_LISTENER, adopt=True)
    for name in ("first", "firs"):
        admin.delete_instance(name)
        eventually_gone(admin, name)
    admin.create_instance("first", NO_LISTENER)  # nothing of it is left
    admin.delete_instance("first")
    eventually_gone(admin, "first")
    Admin(cluster).delete_topics(["plain"])


def allow(principal: str, pattern: Pattern) -> Binding:
    return Binding(pattern, Entry(principal, "*", Operation.READ, Permission.ALLOW))


OTHERS_RULE = allow("User:eve", Pattern(ResourceType.TOPIC, "shared"))


def fill(cluster: Cluster, name: str) -> None:
    """Gives an instance of everything that it can have."""
    Admin(cluster).create_topic(f"{name}.orders", 2)
    with Producer(addresses(cluster), ProducerSettings(transactional_id=f"{name}.tx"), cluster.settings) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(f"{name}.orders", b"paid")
    GroupAdmin(cluster).commit(f"{name}.app", {TopicPartition(f"{name}.orders", 0): 0})
    UserAdmin(cluster).set_password(f"{name}.bob", "secret", ("SCRAM-SHA-256",))
    token = m.CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name=f"{name}.bob", renewers=[], max_lifetime_ms=-1
    )
    assert ask(cluster, token, m.CreateDelegationTokenResponse).error_code == 0
    quotas = QuotaAdmin(cluster)
    quotas.alter_quotas({USER: f"{name}.bob"}, {"producer_byte_rate": 5.0})
    quotas.alter_quotas({USER: f"{name}.bob", CLIENT_ID: "c"}, {"producer_byte_rate": 6.0})
    quotas.alter_quotas({CLIENT_ID: f"{name}.c"}, {"producer_byte_rate": 7.0})
    AclAdmin(cluster).create_acls(
        [
            allow(f"User:{name}.bob", Pattern(ResourceType.TOPIC, f"{name}.orders")),
            allow("User:eve", Pattern(ResourceType.GROUP, f"{name}.", PatternType.PREFIXED)),
            allow(f"User:{name}.bob", Pattern(ResourceType.TOPIC, "shared")),
            OTHERS_RULE,
        ]
    )


def ask(cluster: Cluster, request: Message, answer: type[R]) -> R:
    """The broker's answer, in the newest version."""
    cluster.refresh([])
    assert cluster._control is not None
    return cluster._control.call(request, answer, cluster.deadline(), type(request).VERSIONS[-1])


def held(cluster: Cluster) -> dict[str, list[str]]:
    """The names of all that there is, by kind."""
    tokens = ask(cluster, m.DescribeDelegationTokenRequest(owners=None), m.DescribeDelegationTokenResponse).tokens
    return {
        "tokens": [each.principal_name for each in tokens],
        "topics": [each.name for each in Admin(cluster).list_topics()],
        "transactional ids": sorted(
            each.transactional_id for each in TransactionAdmin(cluster).list_transactions(TransactionFilter())
        ),
        "groups": [each.group_id for each in GroupAdmin(cluster).list_groups()],
        "users": [each.name for each in UserAdmin(cluster).list_users() if "." in each.name],
        "quotas": sorted(str(name) for each in QuotaAdmin(cluster).list_quotas() for name in each.entity.values()),
        "rules": sorted(f"{each.entry.principal} {each.pattern.name}" for each in AclAdmin(cluster).describe_acls()),
    }


def test_everything_of_a_deleted_instance_goes_and_nothing_of_another(cluster: Cluster, admin: InstanceAdmin) -> None:
    for name in ("acme", "acme-2"):
        admin.create_instance(name, NO_LISTENER)
    fill(cluster, "acme-2")
    alone = held(cluster)
    fill(cluster, "acme")
    assert [kind for kind, found in held(cluster).items() if len(found) <= len(alone[kind])] == []
    admin.delete_instance("acme", with_data=True, grace_ms=0)
    eventually_gone(admin, "acme")
    assert held(cluster) == alone
    admin.create_instance("acme", NO_LISTENER)  # a new one finds nothing of the old one
    Admin(cluster).create_topic("acme.orders", 2)
    assert GroupAdmin(cluster).offsets("acme.app") == {}
    for name in ("acme", "acme-2"):
        admin.delete_instance(name, with_data=True, grace_ms=0)
        eventually_gone(admin, name)
    left = {kind: found for kind, found in held(cluster).items() if found}
    assert left == {"rules": ["User:eve shared"]}


def test_a_removal_waits_for_the_members_of_groups(cluster: Cluster, admin: InstanceAdmin) -> None:
    admin.create_instance("acme", NO_LISTENER)
    Admin(cluster).create_topic("acme.orders", 1)
    settings = ConsumerSettings(group_id="acme.app", auto_commit=False)
    with Consumer(addresses(cluster), settings, cluster.settings) as consumer:
        consumer.subscribe(["acme.orders"])
        eventually(lambda: consumer.poll(10) or consumer.assignment, "its partition")
        admin.delete_instance("acme", with_data=True, grace_ms=0)
        eventually(lambda: not Admin(cluster).list_topics(), "the end of the topic")
        [found] = admin.describe_instances()
        assert found.instance.state is InstanceState.REMOVING
        with pytest.raises(KafkaError, match="cannot be brought back"):
            admin.alter_instance("acme", {"state": "active"})
        assert [each.group_id for each in GroupAdmin(cluster).list_groups()] == ["acme.app"]
    eventually_gone(admin, "acme")
    assert GroupAdmin(cluster).list_groups() == []


def test_one_of_several_that_ask_for_a_port_at_once_gets_it(broker: Broker, admin: InstanceAdmin) -> None:
    [port] = free_ports(1)

    def create(number: int) -> str:
        with client_of(broker, "admin") as cluster:
            try:
                return InstanceAdmin(cluster).create_instance(f"t{number}", {"port": port}).instance.name
            except KafkaError as error:
                return error.message

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(create, range(6)))
    [made] = names(admin)
    refused = f"cannot have port {port}: instance {made} has it"
    assert sorted(outcomes, key=len)[0] == made
    assert sum(refused in each for each in outcomes) == 5
    admin.delete_instance(made)
    eventually_gone(admin, made)


def test_a_listener_that_does_not_open_is_told(broker: Broker, admin: InstanceAdmin) -> None:
    settings = broker.client_settings("admin").replace(api_timeout_ms=1500)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        Cluster(broker.bootstrap, settings) as hasty,
        pytest.raises(KafkaError, match="instance shut has no listener on brokers 0 yet: see their logs"),
    ):
        admin.create_instance("shut", {"port": taken.getsockname()[1]})
        InstanceAdmin(hasty).await_listeners("shut")
    admin.delete_instance("shut")
    eventually_gone(admin, "shut")


def test_a_deletion_goes_on_after_a_restart(broker: Broker, admin: InstanceAdmin, cluster: Cluster) -> None:
    admin.create_instance("acme", NO_LISTENER)
    admin.create_instance("stays", {**NO_LISTENER, "bytes_in": 3})
    Admin(cluster).create_topic("acme.orders", 2)
    admin.delete_instance("acme", with_data=True, grace_ms=1500)
    broker.restart()
    eventually_gone(admin, "acme")
    [found] = admin.describe_instances()
    assert (found.instance.name, found.instance.bytes_in) == ("stays", 3)
    assert Admin(cluster).list_topics() == []
    admin.delete_instance("stays")
    eventually_gone(admin, "stays")
