"""Rules decide as Apache Kafka's do, and as fast among ten thousand."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.access import Operation, RequestOrigin, ResourceType, supported_operations
from headrace.security.acls.authorizer import AclAuthorizer, canonical_host
from headrace.security.acls.filters import BindingFilter, EntryFilter, PatternFilter
from headrace.security.acls.model import (
    Binding,
    Entry,
    Pattern,
    PatternType,
    Permission,
    check_principal,
    title,
    titles,
)

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ALICE, BOB = "User:alice", "User:bob"
HOST = "10.0.0.7"


def rule(
    name: str = "t",
    operation: Operation = Operation.READ,
    permission: Permission = ALLOW,
    *,
    principal: str = ALICE,
    host: str = "*",
    kind: PatternType = LITERAL,
    resource: ResourceType = TOPIC,
) -> Binding:
    return Binding(Pattern(resource, name, kind), Entry(principal, host, operation, permission))


def authorizer(*rules: Binding, super_users: Sequence[str] = (), allow_if_no_rule: bool = False) -> AclAuthorizer:
    made = AclAuthorizer(super_users, allow_if_no_rule=allow_if_no_rule)
    for each in rules:
        made.replace(each.pattern, [*made.entries(each.pattern), each.entry])
    return made


def origin(principal: str = ALICE, host: str = HOST) -> RequestOrigin:
    return RequestOrigin(principal, host, "PLAINTEXT", None)


def permits(
    rules: AclAuthorizer,
    operation: Operation = Operation.READ,
    name: str = "t",
    *,
    principal: str = ALICE,
    host: str = HOST,
    resource: ResourceType = TOPIC,
) -> bool:
    return rules.permits(origin(principal, host), operation, resource, name)


def test_without_a_rule_everything_is_denied_unless_the_setting_allows_it() -> None:
    assert not permits(authorizer())
    assert permits(authorizer(allow_if_no_rule=True))


def test_a_rule_for_somebody_else_ends_the_permission_of_a_resource_without_rules() -> None:
    assert not permits(authorizer(rule(principal=BOB), allow_if_no_rule=True))
    assert permits(authorizer(rule(principal=BOB), allow_if_no_rule=True), name="other")


def test_a_super_user_is_permitted_everything_even_what_is_denied() -> None:
    rules = authorizer(rule(permission=DENY), super_users=[ALICE])
    assert permits(rules)
    assert rules.permits_any(origin(), Operation.WRITE, TOPIC)
    assert rules.permitted(origin(), [Operation.READ], TOPIC, "t") == [Operation.READ]
    assert not permits(rules, principal=BOB)


@pytest.mark.parametrize(
    ("allow", "deny"),
    [
        (rule(), rule(permission=DENY)),
        (rule(), rule("*", permission=DENY)),
        (rule(), rule(permission=DENY, principal="User:*")),
        (rule(), rule("", permission=DENY, kind=PREFIXED)),
        (rule("*"), rule("t", permission=DENY, kind=PREFIXED)),
        (rule("t", kind=PREFIXED), rule(operation=Operation.ALL, permission=DENY)),
        (rule(host=HOST), rule(host="*", permission=DENY)),
    ],
)
def test_a_denial_holds_whatever_allows(allow: Binding, deny: Binding) -> None:
    assert permits(authorizer(allow))
    assert not permits(authorizer(allow, deny))


@pytest.mark.parametrize("by", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL])
def test_describe_is_implied_by_an_allow_and_not_by_a_denial(by: Operation) -> None:
    assert permits(authorizer(rule(operation=by)), Operation.DESCRIBE)
    is_denied = not permits(
        authorizer(rule(operation=Operation.DESCRIBE), rule(operation=by, permission=DENY)), Operation.DESCRIBE
    )
    assert is_denied is (by is Operation.ALL)


def test_describe_configs_is_implied_by_alter_configs_alone() -> None:
    assert permits(authorizer(rule(operation=Operation.ALTER_CONFIGS)), Operation.DESCRIBE_CONFIGS)
    assert not permits(authorizer(rule(operation=Operation.ALTER)), Operation.DESCRIBE_CONFIGS)
    assert not permits(authorizer(rule(operation=Operation.DESCRIBE)), Operation.DESCRIBE_CONFIGS)


def test_a_star_is_every_resource_in_a_literal_pattern_and_a_character_in_a_prefixed_one() -> None:
    assert permits(authorizer(rule("*")), name="anything")
    assert not permits(authorizer(rule("*", kind=PREFIXED)), name="anything")
    assert permits(authorizer(rule("*", kind=PREFIXED)), name="*thing")


def test_a_rule_applies_to_its_type_of_resource_alone() -> None:
    assert not permits(authorizer(rule()), resource=GROUP)


def test_a_principal_is_compared_as_it_is_written() -> None:
    assert not permits(authorizer(rule(principal="user:alice")))
    assert not permits(authorizer(rule(principal="Group:*")))
    assert permits(authorizer(rule(principal="User:*")))


@pytest.mark.parametrize(
    ("ruled", "actual"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("10.0.0.7", "::ffff:10.0.0.7"),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1%eth0"),
    ],
)
def test_an_address_has_one_meaning_in_each_of_its_forms(ruled: str, actual: str) -> None:
    assert permits(authorizer(rule(host=ruled)), host=actual)
    assert not permits(authorizer(rule(), rule(host=ruled, permission=DENY)), host=actual)
    assert canonical_host("not:an:address") == "not:an:address"


def test_names_of_types_are_read_in_both_forms() -> None:
    assert title(ResourceType.TRANSACTIONAL_ID) == "TransactionalId"
    assert titles(Operation)["DescribeConfigs"] is titles(Operation)["DESCRIBE_CONFIGS"] is Operation.DESCRIBE_CONFIGS


def test_a_principal_needs_its_type() -> None:
    assert check_principal("User:CN=a:b,O=c") == "User:CN=a:b,O=c"
    with pytest.raises(ValueError, match="expected a string in format principalType:principalName but got alice"):
        check_principal("alice")


def test_each_type_of_resource_has_its_operations() -> None:
    for each in ResourceType:
        if each is not ResourceType.ANY:
            operations = supported_operations(each)
            assert list(operations) == sorted(operations)
            assert not {Operation.ANY, Operation.ALL} & set(operations)


def test_rules_that_were_removed_leave_nothing_behind() -> None:
    rules = authorizer(rule(), rule("t", kind=PREFIXED), rule("*", permission=DENY), rule("acme.t"), rule("acme.u"))
    for pattern in rules.patterns:
        assert rules.replace(pattern, [])
        assert not rules.replace(pattern, [])
    assert rules.patterns == ()
    assert rules._names == {}
    assert rules._by_first == {}
    assert all(not each.literal and not each.prefixed and not each.lengths for each in rules._types.values())


def test_the_patterns_of_a_namespace_are_found_without_the_others() -> None:
    mine = [rule("acme.t"), rule("acme.", kind=PREFIXED), rule("acme.t", resource=GROUP)]
    others = [rule("acmes.t"), rule("acme"), rule("t.acme."), rule("beta.acme.t")]
    rules = authorizer(*mine, *others)
    assert set(rules.patterns_under("acme")) == {each.pattern for each in mine}
    user = Pattern(ResourceType.USER, "User:acme.alice", PatternType.LITERAL)
    rules.replace(user, [mine[0].entry])
    assert user in rules.patterns_under("acme")
    assert rules.patterns_under("nobody") == ()


NAMES = st.text("ab*", min_size=1, max_size=3)
PRINCIPALS = st.sampled_from([ALICE, BOB, "User:*"])
HOSTS = st.sampled_from(["*", HOST, "10.0.0.8"])
OPERATIONS = st.sampled_from([each for each in Operation if each is not Operation.ANY])
RULES = st.builds(
    Binding,
    st.builds(Pattern, st.sampled_from([TOPIC, GROUP]), NAMES, st.sampled_from([LITERAL, PREFIXED])),
    st.builds(Entry, PRINCIPALS, HOSTS, OPERATIONS, st.sampled_from([ALLOW, DENY])),
)
IMPLY_DESCRIBE = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}


class Naive:
    """Looks at every rule, one sentence of Kafka's documentation after the other."""

    def __init__(self, rules: Sequence[Binding], *, allow_if_no_rule: bool) -> None:
        self.rules, self.allow_if_no_rule = rules, allow_if_no_rule

    def permits(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        of_resource = [each for each in self.rules if self.applies(each.pattern, resource, name)]
        if not of_resource:
            return self.allow_if_no_rule
        mine = [each.entry for each in of_resource if self.is_for(each.entry, principal, host)]
        if any(each.permission is DENY and each.operation in (operation, Operation.ALL) for each in mine):
            return False
        return any(each.permission is ALLOW and self.includes(each.operation, operation) for each in mine)

    def permits_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        mine = [
            each
            for each in self.rules
            if each.pattern.resource is resource
            and self.is_for(each.entry, principal, host)
            and each.entry.operation in (operation, Operation.ALL)
        ]
        denied = [each.pattern for each in mine if each.entry.permission is DENY]
        if Pattern(resource, "*") in denied:
            return False
        if self.allow_if_no_rule and all(each.pattern != Pattern(resource, "*") for each in self.rules):
            return True
        for pattern in (each.pattern for each in mine if each.entry.permission is ALLOW):
            if pattern == Pattern(resource, "*"):
                return True
            is_covered = any(each.kind is PREFIXED and pattern.name.startswith(each.name) for each in denied)
            if not is_covered and not (pattern.kind is LITERAL and pattern in denied):
                return True
        return False

    @staticmethod
    def applies(pattern: Pattern, resource: ResourceType, name: str) -> bool:
        if pattern.resource is not resource:
            return False
        if pattern.kind is PREFIXED:
            return name.startswith(pattern.name)
        return pattern.name in ("*", name)

    @staticmethod
    def is_for(entry: Entry, principal: str, host: str) -> bool:
        return entry.principal in (principal, "User:*") and entry.host in (host, "*")

    @staticmethod
    def includes(allowed: Operation, wanted: Operation) -> bool:
        if allowed in (wanted, Operation.ALL):
            return True
        if wanted is Operation.DESCRIBE:
            return allowed in IMPLY_DESCRIBE
        return wanted is Operation.DESCRIBE_CONFIGS and allowed is Operation.ALTER_CONFIGS


@given(
    st.lists(RULES, max_size=12),
    st.lists(RULES, max_size=4),
    st.booleans(),
    st.lists(st.tuples(PRINCIPALS, HOSTS, OPERATIONS, st.sampled_from([TOPIC, GROUP]), NAMES), min_size=1, max_size=20),
)
def test_decides_like_a_model_that_looks_at_every_rule(
    added: list[Binding],
    removed: list[Binding],
    allow_if_no_rule: bool,
    asked: list[tuple[str, str, Operation, ResourceType, str]],
) -> None:
    rules = authorizer(*added, *removed, allow_if_no_rule=allow_if_no_rule)
    for each in removed:
        rules.replace(each.pattern, [entry for entry in rules.entries(each.pattern) if entry != each.entry])
    model = Naive([each for each in added if each not in removed], allow_if_no_rule=allow_if_no_rule)
    for principal, host, operation, resource, name in asked:
        who = origin(principal, host)
        assert rules.permits(who, operation, resource, name) is model.permits(
            principal, host, operation, resource, name
        )
        assert (operation in rules.permitted(who, [*Operation], resource, name)) is model.permits(
            principal, host, operation, resource, name
        )
        for _ in range(2):
            found = rules.permits_any(who, operation, resource)
            assert found is model.permits_any(principal, host, operation, resource)


def as_under(prefix: str, rules: Sequence[Binding]) -> list[Binding]:
    """The rules that matter under a prefix, with names that lack it; what is for all of them is for `*`."""
    found = []
    for each in rules:
        resource, name, kind = each.pattern
        if (kind is PREFIXED and prefix.startswith(name)) or (kind is LITERAL and name == "*"):
            found.append(each._replace(pattern=Pattern(resource, "*")))
        elif name.startswith(prefix):
            found.append(each._replace(pattern=Pattern(resource, name.removeprefix(prefix), kind)))
    return found


SPACES = st.sampled_from(["a.", "b.", "ab.", "", "a"])


@given(
    st.lists(
        st.builds(
            Binding,
            st.builds(
                Pattern,
                st.sampled_from([TOPIC, GROUP]),
                st.builds("{}{}".format, SPACES, st.sampled_from(["a", "b", "ab", "a.b"]))
                | st.sampled_from(["*", "a."]),
                st.sampled_from([LITERAL, PREFIXED]),
            ),
            st.builds(Entry, PRINCIPALS, st.just("*"), st.just(Operation.WRITE), st.sampled_from([ALLOW, DENY])),
        ),
        max_size=6,
    ),
    st.booleans(),
)
def test_whether_anything_under_a_prefix_is_permitted_depends_on_rules_for_what_is_under_it(
    added: list[Binding], allow_if_no_rule: bool
) -> None:
    rules = authorizer(*added, allow_if_no_rule=allow_if_no_rule)
    for prefix in ("a.", "b.", "c."):
        model = Naive(as_under(prefix, added), allow_if_no_rule=allow_if_no_rule)
        for principal in (ALICE, BOB):
            found = rules.permits_any(origin(principal, HOST), Operation.WRITE, TOPIC, prefix=prefix)
            assert found is model.permits_any(principal, HOST, Operation.WRITE, TOPIC), (prefix, principal)


FILTERS = st.builds(
    BindingFilter,
    st.builds(
        PatternFilter,
        st.sampled_from([ResourceType.ANY, TOPIC, GROUP]),
        st.none() | NAMES,
        st.sampled_from(list(PatternType)),
    ),
    st.builds(
        EntryFilter,
        st.none() | PRINCIPALS,
        st.none() | HOSTS,
        st.sampled_from([Operation.ANY, Operation.READ, Operation.ALL]),
        st.sampled_from(list(Permission)),
    ),
)


@given(st.lists(RULES, max_size=20), FILTERS)
def test_a_filter_finds_what_looking_at_every_rule_finds(added: list[Binding], wanted: BindingFilter) -> None:
    rules = authorizer(*added)
    found = list(rules.select(wanted))
    assert len(found) == len(set(found))
    assert set(found) == {each for each in added if wanted.accepts(each)}


def test_match_finds_what_applies_to_a_name_and_any_what_has_the_name() -> None:
    rules = authorizer(rule("top"), rule("to", kind=PREFIXED), rule("top", kind=PREFIXED), rule("*"), rule("t"))

    def found(kind: PatternType) -> set[tuple[str, PatternType]]:
        selected = rules.select(BindingFilter(PatternFilter(TOPIC, "top", kind)))
        return {(each.pattern.name, each.pattern.kind) for each in selected}

    assert found(PatternType.MATCH) == {("top", LITERAL), ("to", PREFIXED), ("top", PREFIXED), ("*", LITERAL)}
    assert found(PatternType.ANY) == {("top", LITERAL), ("top", PREFIXED)}
    assert found(LITERAL) == {("top", LITERAL)}
    assert found(PREFIXED) == {("top", PREFIXED)}


def test_a_decision_among_ten_thousand_rules_looks_at_few() -> None:
    looked = 0

    class Counted(dict[str, object]):
        def get(self, key: str, default: object = None) -> object:
            nonlocal looked
            looked += 1
            return super().get(key, default)

    rules = authorizer(
        *(rule(f"topic-{n:05}", principal=f"User:u{n}") for n in range(2000)),
        *(rule(f"topic-{n:05}", principal=f"User:u{n}", kind=PREFIXED) for n in range(2000)),
        *(rule(f"topic-{n:04}", principal=f"User:u{n}", kind=PREFIXED) for n in range(1000)),
    )
    for each in range(5000):
        pattern = Pattern(TOPIC, "*")
        if each % 500 == 0:
            rules.replace(pattern, [Entry(f"User:w{n}", "*", Operation.READ, ALLOW) for n in range(each)])
    of_topics = rules._types[TOPIC]
    of_topics.literal, of_topics.prefixed = Counted(of_topics.literal), Counted(of_topics.prefixed)  # type: ignore[assignment]
    assert permits(rules, name="topic-01999", principal="User:u1999")
    assert looked <= 4


def test_a_filter_by_match_costs_a_look_up_for_each_length_of_prefix() -> None:
    """DeleteAcls yields by it: a request may have a hundred thousand such filters."""
    rules = AclAuthorizer()
    entry = Entry("User:alice", "*", Operation.READ, Permission.ALLOW)
    for length in range(1, 101):
        rules.replace(Pattern(ResourceType.GROUP, "p" * length, PatternType.PREFIXED), [entry])
    of_groups = PatternFilter(ResourceType.GROUP, "q", PatternType.MATCH)
    assert rules.matching_patterns(of_groups) == []
    assert rules.look_ups(of_groups) >= 100
    assert rules.look_ups(of_groups._replace(resource=ResourceType.ANY)) > 100
    assert rules.look_ups(of_groups._replace(kind=PatternType.LITERAL)) < 20
    assert rules.look_ups(of_groups._replace(name=None)) == 100
