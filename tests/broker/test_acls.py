"""A broker with an authorizer: its rules are created, described, deleted, enforced and recorded."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.handlers import delete_acls
from headrace.broker.security.authorizer import Authorizer
from headrace.config import parse_broker
from headrace.errors import ErrorCode
from headrace.in_slices import Turns
from headrace.limits import ACL_SCANS_PER_REQUEST_MAX, ELEMENTS_PER_SLICE
from headrace.protocol import messages as m
from headrace.records.format2.batch import Record, encode_batch
from headrace.security.access import Operation, ResourceType
from headrace.security.acls.filters import BindingFilter, EntryFilter, PatternFilter
from headrace.security.acls.model import Binding, PatternType, Permission
from tests.asker import Asker
from tests.broker.acl_requests import (
    ALL,
    AUTHORIZED,
    VERSION,
    create,
    create_request,
    creation,
    delete_request,
    deleted,
    describe_request,
    described,
    exactly,
    rule,
)
from tests.eventually import eventually
from tests.harness import HeadraceServer

ANONYMOUS = "User:ANONYMOUS"
INVALID = int(ErrorCode.INVALID_REQUEST)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    started = HeadraceServer(tmp_path_factory.mktemp("acls") / "data", AUTHORIZED)
    started.start()
    yield started
    started.stop()


@pytest.fixture
def asker(server: HeadraceServer) -> Iterator[Asker]:
    with Asker(server.bootstrap) as connection:
        yield connection
        deleted(connection, ALL)


def test_rules_are_created_described_and_deleted(asker: Asker) -> None:
    rules = {
        rule("Topic:t", "Read"),
        rule("Topic:t", "Write", "User:bob", host="10.0.0.7", permission="Deny"),
        rule("Topic:t*", "Describe"),
        rule("Group:*", "All", "User:*"),
        rule("Cluster:kafka-cluster", "IdempotentWrite"),
        rule("TransactionalId:tx", "TwoPhaseCommit"),
        rule("DelegationToken:x", "Describe"),
        rule("User:User:alice", "CreateTokens", "User:admin"),
    }
    assert create(asker, *rules) == [(0, None)] * len(rules)
    assert create(asker, rule("Topic:t", "Read")) == [(0, None)], "it is there already"
    assert described(asker) == rules
    of_topic = {each for each in rules if each.pattern.resource is ResourceType.TOPIC}
    matching = BindingFilter(PatternFilter(ResourceType.TOPIC, "t", PatternType.MATCH))
    assert described(asker, matching) == of_topic
    allowed = BindingFilter(entry=EntryFilter("User:alice", permission=Permission.ALLOW))
    assert deleted(asker, matching, allowed) == [
        of_topic,
        {each for each in rules if each.entry.principal == "User:alice"},
    ]
    left = {rule("Group:*", "All", "User:*"), rule("User:User:alice", "CreateTokens", "User:admin")}
    assert described(asker) == left
    assert deleted(asker, matching, exactly(rule("Topic:t", "Read"))) == [set(), set()]


def test_old_versions_know_literal_rules_alone(asker: Asker) -> None:
    assert asker.ask(create_request(rule("Topic:old", "Read")), 0).results[0].error_code == 0
    create(asker, rule("Topic:o*", "Read"))
    wanted = describe_request(BindingFilter(PatternFilter(ResourceType.TOPIC, None, PatternType.LITERAL)))
    found = asker.ask(wanted, 0).resources
    assert [(each.resource_name, each.pattern_type) for each in found] == [("old", PatternType.LITERAL)]
    gone = asker.ask(delete_request(BindingFilter(PatternFilter(kind=PatternType.LITERAL))), 0)
    assert len(gone.filter_results[0].matching_acls) == 1
    assert described(asker) == {rule("Topic:o*", "Read")}


def changed(**fields: Any) -> m.CreateAclsRequest:
    """A request with a rule that is right but for some fields, and one that is right."""
    wrong = creation(rule("Topic:t", "Read"))
    for name, value in fields.items():
        setattr(wrong, name, value)
    return m.CreateAclsRequest(creations=[wrong, creation(rule("Topic:right", "Read"))])


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"resource_type": ResourceType.CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_name": "a/b"}, "ACL binding contains invalid resource name: a/b"),
        ({"resource_name": ".."}, "ACL binding contains invalid resource name: .."),
        ({"resource_name": "a\0b"}, "ACL binding contains invalid resource name: a\0b"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"resource_pattern_type": 99}, "Invalid patternType UNKNOWN"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": -7}, "Invalid operation UNKNOWN"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"permission_type": 4}, "Invalid permissionType UNKNOWN"),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` (no colon is present separating the principal type from the "
            "principal name)",
        ),
    ],
)
def test_a_wrong_rule_is_refused_alone_with_its_reason(asker: Asker, fields: dict[str, Any], text: str) -> None:
    answer = asker.ask(changed(**fields), VERSION)
    assert [(each.error_code, each.error_message) for each in answer.results] == [(INVALID, text), (0, "")]
    assert described(asker) == {rule("Topic:right", "Read")}


@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
def test_a_code_that_the_client_did_not_know_itself_refuses_all_rules(asker: Asker, field: str) -> None:
    answer = asker.ask(changed(**{field: 0}), VERSION)
    assert [each.error_code for each in answer.results] == [INVALID, INVALID]
    assert described(asker) == set()


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
def test_a_filter_with_a_code_that_is_not_known_finds_and_deletes_nothing(asker: Asker, field: str) -> None:
    create(asker, rule("Topic:t", "Read"))
    describe, delete = describe_request(), delete_request(ALL)
    for code, error in ((0, INVALID), (99, 0)):
        setattr(describe, field, code)
        answer = asker.ask(describe, VERSION)
        assert (answer.error_code, answer.resources) == (error, [])
        setattr(delete.filters[0], field, code)
        assert asker.ask(delete, VERSION).filter_results[0].error_code == INVALID
    assert described(asker) == {rule("Topic:t", "Read")}


def test_filters_that_would_take_long_are_refused_before_anything_is_deleted(asker: Asker) -> None:
    create(asker, rule("Topic:t", "Read"))
    for wanted in (
        [ALL] * (ACL_SCANS_PER_REQUEST_MAX + 1),
        [
            BindingFilter(PatternFilter(ResourceType.TOPIC, "t"), EntryFilter("User:alice", str(host)))
            for host in range(ACL_SCANS_PER_REQUEST_MAX + 1)
        ],
    ):
        answer = asker.ask(delete_request(*wanted), VERSION)
        assert {each.error_code for each in answer.filter_results} == {INVALID}
    assert described(asker) == {rule("Topic:t", "Read")}


@pytest.mark.slow
def test_thousands_of_rules_are_created_and_deleted_in_one_request(asker: Asker) -> None:
    rules = [rule("Topic:many", "Read", f"User:u{number}") for number in range(2000)]
    rules += [rule(f"Group:g{number}", "Read") for number in range(500)]
    assert create(asker, *rules) == [(0, None)] * len(rules)
    assert described(asker) == set(rules)
    assert deleted(asker, *map(exactly, rules)) == [{each} for each in rules]
    assert described(asker) == set()


def test_a_pattern_with_more_rules_than_a_node_can_hold_is_told(asker: Asker) -> None:
    rules = [rule("Topic:full", "Read", f"User:{'x' * 2000}{number}") for number in range(600)]
    answers = create(asker, *rules)
    assert len(set(answers)) == 1
    assert answers[0] in ((0, None), (INVALID, "The resource 'full' has too many ACLs: they are kept in one node."))


def test_without_an_authorizer_there_are_no_rules(tmp_path: Path) -> None:
    server = HeadraceServer(tmp_path / "data")
    server.start()
    try:
        with Asker(server.bootstrap) as asker:
            told = asker.ask(describe_request(), VERSION)
            assert (told.error_code, told.error_message) == (
                ErrorCode.SECURITY_DISABLED,
                "No Authorizer is configured on the broker",
            )
            (created,) = asker.ask(create_request(rule("Topic:t")), VERSION).results
            (gone,) = asker.ask(delete_request(ALL), VERSION).filter_results
            for each in (created, gone):
                assert (each.error_code, each.error_message) == (
                    ErrorCode.SECURITY_DISABLED,
                    "No Authorizer is configured.",
                )
    finally:
        server.stop()


def produced(asker: Asker, topic: str = "t") -> ErrorCode:
    each = m.ProduceRequest.PartitionProduceData(index=0, records=bytes(encode_batch([Record(0, 1, None, b"v", ())])))
    data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[each])
    answer = asker.ask(m.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


class Ruled:
    """A broker whose anonymous clients are no super users: they may change rules, and what else the rules say."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.server = HeadraceServer(directory / "data", {**AUTHORIZED, **settings})

    def __enter__(self) -> "Ruled":
        self.server.start()
        with Asker(self.server.bootstrap) as asker:
            topic = m.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            asker.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
            create(asker, rule("Cluster:kafka-cluster", "Alter", ANONYMOUS))
        self.server.stop()
        self.server.settings["super.users"] = "User:nobody"
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()


@pytest.fixture
def ruled(tmp_path: Path) -> Iterator[Ruled]:
    with Ruled(tmp_path) as started:
        yield started


@pytest.mark.slow
def test_a_rule_holds_on_open_connections_and_after_a_restart(ruled: Ruled) -> None:
    write = rule("Topic:t", "Write", ANONYMOUS)
    with Asker(ruled.server.bootstrap) as admin, Asker(ruled.server.bootstrap) as client:
        assert produced(client) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        create(admin, write)
        assert produced(client) is ErrorCode.NONE
        create(admin, rule("Topic:*", "Write", "User:*", permission="Deny"))
        assert produced(client) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        deleted(admin, exactly(rule("Topic:*", "Write", "User:*", permission="Deny")))
        assert produced(client) is ErrorCode.NONE
    ruled.server.stop()
    ruled.server.start()
    with Asker(ruled.server.bootstrap) as client:
        assert produced(client) is ErrorCode.NONE


@pytest.mark.slow
def test_who_may_alter_the_cluster_is_asked_before_rules_are_touched(ruled: Ruled) -> None:
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with Asker(ruled.server.bootstrap) as asker:
        deleted(asker, exactly(rule("Cluster:kafka-cluster", "Alter", ANONYMOUS)))
        assert create(asker, rule("Topic:t"))[0][0] == refused
        assert asker.ask(delete_request(ALL), VERSION).filter_results[0].error_code == refused
        assert asker.ask(describe_request(), VERSION).error_code == refused


@pytest.mark.slow
def test_corrupt_rules_end_a_start_with_the_name_of_their_node(tmp_path: Path) -> None:
    import sqlite3

    server = HeadraceServer(tmp_path / "data", AUTHORIZED)
    server.start()
    with Asker(server.bootstrap) as asker:
        create(asker, rule("Topic:t", "Read"))
    server.stop()
    (file,) = (each for each in server.data.iterdir() if each.read_bytes()[:6] == b"SQLite")
    with sqlite3.connect(file) as tree:
        tree.execute("UPDATE node SET data = x'7b' WHERE path = '/kafka-acl/Topic/t'")
    tree.close()
    with pytest.raises(RuntimeError, match=r"the cluster's metadata cannot be read: /kafka-acl/Topic/t: "):
        server.start()


def test_a_change_of_rules_is_recorded_with_who_made_it(server: HeadraceServer, asker: Asker) -> None:
    create(asker, rule("Topic:logged\n", "Read"))
    deleted(asker, ALL)
    fields = 'principal=User:ANONYMOUS host=127.0.0.1 resource=TOPIC named="logged\\n" pattern=LITERAL count=1\n'
    for verb in ("created", "deleted"):
        expected = f"INFO kafka.authorizer.logger: ACLs {verb} {fields}"
        eventually(partial(is_logged, server, expected), expected)


def is_logged(server: HeadraceServer, line: str) -> bool:
    return line in server.stderr_file.read_text()


@pytest.mark.slow
def test_match_finds_the_prefixes_of_a_name_among_thousands(asker: Asker) -> None:
    rules: list[Binding] = [rule(f"Topic:name-{number}*", "Read", f"User:u{number % 7}") for number in range(2000)]
    create(asker, *rules)
    assert described(asker, BindingFilter(PatternFilter(ResourceType.TOPIC, "name-1999-x", PatternType.MATCH))) == {
        rule(f"Topic:{name}*", "Read", f"User:u{number % 7}")
        for name, number in (("name-1", 1), ("name-19", 19), ("name-199", 199), ("name-1999", 1999))
    }


def test_describe_finds_by_operation(asker: Asker) -> None:
    create(asker, rule("Topic:t", "Read"), rule("Topic:t", "Write"))
    assert described(asker, BindingFilter(entry=EntryFilter(operation=Operation.WRITE))) == {rule("Topic:t", "Write")}


async def known(*rules: Binding) -> Authorizer:
    """An authorizer that knows rules which are nowhere stored."""
    unused: Any = None
    made = Authorizer(parse_broker({}), unused, asyncio.get_running_loop())
    for each in rules:
        made.rules.replace(each.pattern, [each.entry])
    return made


@pytest.mark.parametrize("wanted", [PatternFilter(), PatternFilter(ResourceType.GROUP)])
@pytest.mark.slow
async def test_a_filter_without_a_name_gives_others_a_turn_at_every_slice_of_patterns(wanted: PatternFilter) -> None:
    """10,000 patterns took 41 ms in one turn."""
    authorizer = await known(*(rule(f"Topic:t{number}") for number in range(3 * ELEMENTS_PER_SLICE)), rule("Group:g"))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(count_turns())
    found = await authorizer.matching_patterns(wanted, Turns())
    others.cancel()
    assert len(found) == (1 if wanted.resource is ResourceType.GROUP else 3 * ELEMENTS_PER_SLICE + 1)
    assert turns >= 3


@pytest.mark.slow
def test_a_filter_by_match_gives_others_a_turn_after_as_many_look_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    class Enough(Exception):
        """The first filter was read."""

    class Counting:
        async def count(self, elements: int = 1) -> None:
            counted.append(elements)
            raise Enough

    authorizer = asyncio.run(known(*(rule(f"Group:{'p' * length}*") for length in range(1, 101))))
    monkeypatch.setattr(delete_acls, "Turns", Counting)
    request = delete_request(BindingFilter(PatternFilter(ResourceType.GROUP, "q", PatternType.MATCH)))
    unused: Any = None
    with pytest.raises(Enough):
        asyncio.run(delete_acls._delete(unused, authorizer, request))
    assert counted[0] > 100
