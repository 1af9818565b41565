"""DescribeAcls, CreateAcls and DeleteAcls beside Apache Kafka with its StandardAuthorizer."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.acls.filters import BindingFilter, EntryFilter, PatternFilter
from headrace.security.acls.model import Binding, PatternType, Permission
from tests.broker.acl_requests import create_request, creation, delete_request, describe_request, exactly, rule
from tests.differential.conversation import Conversation
from tests.differential.scenario import Brokers, scenario, served_versions
from tests.harness import HeadraceServer
from tests.peers import kafka

pytestmark = pytest.mark.slow  # asks Apache Kafka

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
CREATE, DESCRIBE = 3, 3


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Both brokers with an authorizer; their anonymous clients are super users."""
    directory = tmp_path_factory.mktemp("acls")
    server = HeadraceServer(directory / "headrace", {**kafka.SHARED_SETTINGS, **SETTINGS, "broker.id": "1"})
    with kafka.run_kafka(directory / "kafka", is_kept=False, settings={**kafka.SHARED_SETTINGS, **SETTINGS}) as theirs:
        server.start()
        try:
            yield Brokers(server.bootstrap, theirs, served_versions(server.bootstrap), served_versions(theirs))
        finally:
            server.stop()


def described(ask: Conversation, wanted: BindingFilter, version: int | None = None) -> None:
    """Asks for rules; the answer is recorded in a certain order."""
    request = describe_request(wanted)
    answer = ask.quietly(request, version)
    for each in answer.resources:
        each.acls.sort(key=lambda acl: (acl.principal, acl.host, acl.operation, acl.permission_type))
    answer.resources.sort(key=lambda each: (each.resource_type, each.resource_name, each.pattern_type))
    ask.record(request, ask._version(request, version), answer)


def deleted(ask: Conversation, *wanted: BindingFilter) -> None:
    """Deletes rules; the answer is recorded in a certain order."""
    request = delete_request(*wanted)
    answer = ask.quietly(request)
    for result in answer.filter_results:
        result.matching_acls.sort(
            key=lambda acl: (acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.operation)
        )
    ask.record(request, ask._version(request, None), answer)


def rules(ask: Conversation) -> list[Binding]:
    """Rules for names that only this run has."""
    name = ask.name("t")
    return [
        rule(f"Topic:{name}", "Read"),
        rule(f"Topic:{name}", "Write", "User:bob", host="10.0.0.7", permission="Deny"),
        rule(f"Topic:{name}*", "Describe"),
        rule(f"Group:{name}", "All", "User:*"),
        rule(f"TransactionalId:{name}", "TwoPhaseCommit"),
        rule(f"DelegationToken:{name}", "Describe"),
        rule(f"User:User:{name}", "CreateTokens"),
    ]


def settled(ask: Conversation, *wanted: Binding) -> None:
    """Waits until rules are known to the broker."""
    for each in wanted:
        request = describe_request(exactly(each))
        ask.settle(lambda answer: len(answer.resources) == 1, request, DESCRIBE)


@scenario(ApiKey.CREATE_ACLS)
def test_creates_rules_and_again(ask: Conversation) -> None:
    ask(create_request(*rules(ask)))
    settled(ask, *rules(ask))
    ask(create_request(*rules(ask)))
    described(ask, BindingFilter(PatternFilter(name=ask.name("t"))), DESCRIBE)
    ask(m.CreateAclsRequest(creations=[]))


def wrong(ask: Conversation, **fields: Any) -> m.CreateAclsRequest:
    """A request with a rule that is right but for some fields, and one that is right."""
    each = creation(rule(f"Topic:{ask.name('wrong')}", "Read"))
    for name, value in fields.items():
        setattr(each, name, value)
    return m.CreateAclsRequest(creations=[each, creation(rule(f"Topic:{ask.name('right')}", "Read"))])


@scenario(ApiKey.CREATE_ACLS)
def test_refuses_wrong_rules_alone(ask: Conversation) -> None:
    ask(wrong(ask, resource_type=4))
    ask(wrong(ask, resource_name=""))
    ask(wrong(ask, resource_type=99))
    ask(wrong(ask, resource_pattern_type=99))
    ask(wrong(ask, operation=99))
    ask(wrong(ask, permission_type=99))
    ask(wrong(ask, principal="alice"))
    ask(wrong(ask, principal=""))
    settled(ask, rule(f"Topic:{ask.name('right')}", "Read"))
    described(ask, BindingFilter(PatternFilter(name=ask.name("wrong"))), DESCRIBE)


@scenario(ApiKey.DESCRIBE_ACLS)
def test_describes_by_every_kind_of_filter(ask: Conversation) -> None:
    ask.quietly(create_request(*rules(ask)), CREATE)
    settled(ask, *rules(ask))
    name = ask.name("t")
    for kind in PatternType:
        described(ask, BindingFilter(PatternFilter(name=name, kind=kind)))
        described(ask, BindingFilter(PatternFilter(rule("Topic:x").pattern.resource, f"{name}-longer", kind)))
    described(ask, BindingFilter(PatternFilter(name=name), EntryFilter("User:alice")))
    described(ask, BindingFilter(PatternFilter(name=name), EntryFilter(host="10.0.0.7")))
    described(ask, BindingFilter(PatternFilter(name=name), EntryFilter(permission=Permission.DENY)))
    described(
        ask, BindingFilter(PatternFilter(name=name), EntryFilter(operation=rule("Topic:x", "Read").entry.operation))
    )
    described(ask, BindingFilter(PatternFilter(name=ask.name("nothing"))))


@scenario(ApiKey.DESCRIBE_ACLS)
def test_finds_nothing_by_codes_that_it_does_not_know(ask: Conversation) -> None:
    ask.quietly(create_request(*rules(ask)), CREATE)
    settled(ask, *rules(ask))
    for field in ("resource_type_filter", "operation", "permission_type"):
        request = describe_request(BindingFilter(PatternFilter(name=ask.name("t"))))
        setattr(request, field, 99)
        ask(request)


@scenario(ApiKey.DELETE_ACLS)
def test_deletes_what_each_filter_matches(ask: Conversation) -> None:
    ask.quietly(create_request(*rules(ask)), CREATE)
    settled(ask, *rules(ask))
    name = ask.name("t")
    deleted(ask, exactly(rules(ask)[0]), exactly(rules(ask)[0]), BindingFilter(PatternFilter(name=ask.name("none"))))
    gone = describe_request(exactly(rules(ask)[0]))
    ask.settle(lambda answer: not answer.resources, gone, DESCRIBE)
    matching = PatternFilter(rules(ask)[0].pattern.resource, name, PatternType.MATCH)
    deleted(ask, BindingFilter(matching), BindingFilter(PatternFilter(name=name), EntryFilter("User:*")))
    ask.settle(lambda answer: not answer.resources, describe_request(BindingFilter(matching)), DESCRIBE)
    described(ask, BindingFilter(PatternFilter(name=name)), DESCRIBE)
    ask(m.DeleteAclsRequest(filters=[]))


@scenario(ApiKey.DELETE_ACLS)
def test_refuses_filters_with_codes_that_it_does_not_know(ask: Conversation) -> None:
    for field in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"):
        request = delete_request(BindingFilter(PatternFilter(name=ask.name("t"))))
        setattr(request.filters[0], field, 99)
        ask(request)
