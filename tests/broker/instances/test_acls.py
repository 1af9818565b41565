"""Access control lists in an instance: its clients' own names, and nothing of the operator's."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.instances.definition import Instance
from headrace.protocol import messages as m
from headrace.security.access import ResourceType
from headrace.security.acls.filters import BindingFilter, PatternFilter
from headrace.security.acls.model import PatternType
from tests.asker import Asker
from tests.broker.acl_requests import create_request, delete_request, describe_request, rule
from tests.broker.instances.houses import Houses
from tests.eventually import eventually

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Houses]:
    instances = (
        Instance("acme", "AAAAAAAAQACAAAAAAAAAAA", admins=("ANONYMOUS",)),
        Instance("beta", "BBBBBBBBQBCBBBBBBBBBBA"),
    )
    with Houses(tmp_path_factory.mktemp("acls") / "data", instances, SETTINGS) as found:
        yield found


def rules(asker: Asker, wanted: BindingFilter | None = None) -> set[tuple[Any, ...]]:
    answer = asker.ask(describe_request() if wanted is None else describe_request(wanted), 3)
    assert answer.error_code == 0, answer
    return {
        (ResourceType(each.resource_type).name, each.resource_name, PatternType(each.pattern_type).name, acl.principal)
        for each in answer.resources
        for acl in each.acls
    }


def made(asker: Asker, *wanted: Any) -> None:
    assert not [each for each in asker.ask(create_request(*wanted), 3).results if each.error_code]


@pytest.fixture(autouse=True)
def without_rules(houses: Houses) -> None:
    with Asker(houses.bootstrap) as operator:
        operator.ask(delete_request(BindingFilter()), 3)
        assert rules(operator) == set()


def test_rules_have_the_instances_names_and_the_operator_sees_them_qualified(houses: Houses) -> None:
    with houses.ask("acme") as wire, Asker(houses.bootstrap) as operator:
        made(operator, rule("Topic:acme.orders", principal="User:operator"), rule("Topic:beta.x", principal="User:o"))
        made(
            wire,
            rule("Topic:orders", principal="User:alice"),
            rule("Topic:*", "Read", principal="User:bob"),
            rule("Group:ap*", principal="User:*"),
            rule("Cluster:kafka-cluster", "Describe", principal="User:alice"),
        )
        own = {
            ("TOPIC", "orders", "LITERAL", "User:alice"),
            ("TOPIC", "*", "LITERAL", "User:bob"),
            ("GROUP", "ap", "PREFIXED", "User:*"),
            ("CLUSTER", "kafka-cluster", "LITERAL", "User:alice"),
        }
        assert rules(wire) == own
        assert rules(operator) == {
            ("TOPIC", "acme.orders", "LITERAL", "User:operator"),
            ("TOPIC", "beta.x", "LITERAL", "User:o"),
            ("TOPIC", "acme.orders", "LITERAL", "User:acme.alice"),
            ("TOPIC", "acme.", "PREFIXED", "User:acme.bob"),
            ("GROUP", "acme.ap", "PREFIXED", "User:*"),
            ("CLUSTER", "acme.kafka-cluster", "LITERAL", "User:acme.alice"),
        }
        matching = BindingFilter(PatternFilter(ResourceType.TOPIC, "orders", PatternType.MATCH))
        assert rules(wire, matching) == {each for each in own if each[0] == "TOPIC"}
        literal = BindingFilter(PatternFilter(ResourceType.TOPIC, "*", PatternType.LITERAL))
        assert rules(wire, literal) == {("TOPIC", "*", "LITERAL", "User:bob")}
        [deleted] = wire.ask(delete_request(literal), 3).filter_results
        assert [(each.resource_name, each.principal) for each in deleted.matching_acls] == [("*", "User:bob")]
        [deleted] = wire.ask(delete_request(BindingFilter()), 3).filter_results
        assert len(deleted.matching_acls) == 3
        assert rules(wire) == set()
        assert rules(operator) == {
            ("TOPIC", "acme.orders", "LITERAL", "User:operator"),
            ("TOPIC", "beta.x", "LITERAL", "User:o"),
        }


def test_who_is_no_admin_needs_a_rule_and_the_operator_may_make_it(houses: Houses) -> None:
    """Rules of the operator about `*` hold in an instance too, those about the cluster do not."""
    creatable = m.CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    request = m.CreateTopicsRequest(topics=[creatable], timeout_ms=30_000)
    with houses.ask("beta") as wire, Asker(houses.bootstrap) as operator:

        def created() -> int:
            return int(wire.ask(request, 7).topics[0].error_code)

        assert created() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert wire.ask(describe_request(), 3).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        made(operator, rule("Cluster:kafka-cluster", "All", principal="User:beta.ANONYMOUS"))
        assert created() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        made(operator, rule("Cluster:beta.kafka-cluster", "All", principal="User:beta.ANONYMOUS"))
        eventually(lambda: created() in (0, ErrorCode.TOPIC_ALREADY_EXISTS), "the right to create topics")
        assert rules(wire) == {("CLUSTER", "kafka-cluster", "LITERAL", "User:ANONYMOUS")}
    assert "beta.orders" in houses.broker.metadata.topics


def test_admins_of_an_instance_may_do_nothing_elsewhere(houses: Houses) -> None:
    with houses.ask("acme") as wire:
        made(wire, rule("Topic:*", principal="User:mallory"))
    view = houses.broker.authorizer
    assert view is not None
    patterns = [each for each in view.rules.patterns if "mallory" in str(view.rules.entries(each))]
    assert [(each.name, each.kind) for each in patterns] == [("acme.", PatternType.PREFIXED)]
