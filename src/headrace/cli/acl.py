"""`headrace acl add|list|remove`: the access control lists of a cluster.

Over the wire by default. With --zookeeper or --data they are written where brokers keep them, without a broker: for the
first rule, before anybody may make one.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Annotated, NamedTuple

import typer

from headrace.cli.option_groups import with_option_groups
from headrace.cli.output import Json, print_json, print_table
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, UsageProblem, cluster_of
from headrace.cli.store_options import StoreOptions
from headrace.client.operations.acl_admin import AclAdmin
from headrace.migrate.refusal import MigrationRefused
from headrace.migrate.store_place import StorePlace
from headrace.migrate.stored_rules import StoredRules
from headrace.security.access import CLUSTER_NAME, Operation, ResourceType, supported_operations
from headrace.security.acls.filters import BindingFilter, EntryFilter, PatternFilter
from headrace.security.acls.model import WILDCARD, Binding, Entry, Pattern, PatternType, Permission, title

app = typer.Typer(no_args_is_help=True)

Principals = Annotated[
    list[str], typer.Option("--principal", metavar="TYPE:NAME", help="Who, as User:alice or User:*; repeatable.")
]
Operations = Annotated[
    list[str],
    typer.Option("--operation", "-o", metavar="NAME", help="What, as Read, DescribeConfigs or All; repeatable."),
]
Hosts = Annotated[list[str], typer.Option("--host", metavar="ADDRESS", help="From where; repeatable.")]
Deny = Annotated[bool, typer.Option("--deny", help="Rules that deny. A rule that denies overrides those that allow.")]
Prefixed = Annotated[
    bool, typer.Option("--prefixed", help="The names are prefixes: the rules apply to every name that begins so.")
]


class Resources(NamedTuple):
    """The resources that the options name."""

    names: Sequence[tuple[ResourceType, str]]
    is_prefixed: bool

    def patterns(self) -> list[Pattern]:
        """The patterns of new rules."""
        kind = PatternType.PREFIXED if self.is_prefixed else PatternType.LITERAL
        for resource, name in self.names:
            if self.is_prefixed and (resource is ResourceType.CLUSTER or name == WILDCARD):
                what = "--cluster" if resource is ResourceType.CLUSTER else "the name *, which means all,"
                raise UsageProblem(f"{what} and --prefixed exclude each other")
        return [Pattern(resource, name, kind) for resource, name in self.names]


class ResourceOptions(NamedTuple):
    """The options that name resources."""

    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="A topic, or * for all; repeatable.")
    ] = None
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="ID", help="A group, or * for all; repeatable.")
    ] = None
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster itself.")] = False
    transactional_id: Annotated[
        list[str] | None,
        typer.Option("--transactional-id", metavar="ID", help="A transactional id, or * for all; repeatable."),
    ] = None
    delegation_token: Annotated[
        list[str] | None,
        typer.Option("--delegation-token", metavar="ID", help="A delegation token, or * for all; repeatable."),
    ] = None
    user: Annotated[
        list[str] | None,
        typer.Option("--user", metavar="TYPE:NAME", help="A user whose delegation tokens are meant, or *; repeatable."),
    ] = None

    def resources(self, *, is_prefixed: bool = False) -> Resources:
        """What they name. Raises `UsageProblem`."""
        named = [
            *((ResourceType.TOPIC, each) for each in self.topic or ()),
            *((ResourceType.GROUP, each) for each in self.group or ()),
            *((ResourceType.CLUSTER, CLUSTER_NAME) for _ in range(self.cluster)),
            *((ResourceType.TRANSACTIONAL_ID, each) for each in self.transactional_id or ()),
            *((ResourceType.DELEGATION_TOKEN, each) for each in self.delegation_token or ()),
            *((ResourceType.USER, each) for each in self.user or ()),
        ]
        for resource, name in named:
            if not name:
                raise UsageProblem(f"the name of a {resource.name.lower()} is empty")
        return Resources(named, is_prefixed)


@app.command()
@with_option_groups
def add(
    *,
    principal: Principals = [],  # noqa: B006
    operation: Operations = [],  # noqa: B006
    host: Hosts = [WILDCARD],  # noqa: B006
    named: ResourceOptions,
    prefixed: Prefixed = False,
    deny: Deny = False,
    producer: Annotated[
        bool, typer.Option("--producer", help="What a producer to the topics, with the transactional ids, needs.")
    ] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="What a consumer of the topics, as a member of the groups, needs.")
    ] = False,
    store: StoreOptions,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Add rules: one for each combination of principal, host, operation and resource."""
    resources = named.resources(is_prefixed=prefixed)
    wanted = _operations(operation)
    _check_principals(principal)
    if not principal:
        raise UsageProblem("name a --principal, as User:alice, or User:* for everybody")
    if not resources.names:
        raise UsageProblem(
            "name a resource: --topic, --group, --cluster, --transactional-id, --delegation-token, --user"
        )
    if not (wanted or producer or consumer):
        raise UsageProblem("name an --operation, or --producer or --consumer")
    if consumer and not (named.topic and named.group):
        raise UsageProblem("--consumer needs a --topic and a --group")
    if producer and not named.topic:
        raise UsageProblem("--producer needs a --topic")
    permission = Permission.DENY if deny else Permission.ALLOW
    found = [
        Binding(pattern, Entry(who, where, what, permission))
        for pattern in resources.patterns()
        for what in _for_pattern(pattern, wanted, producer, consumer)
        for who, where in product(principal, host)
    ]
    rules = list(dict.fromkeys(found))
    place = store.place()
    if not dry_run:
        with _rules_at(place, bootstrap) as admin:
            admin.create_acls(rules)
    _print(rules, "would add" if dry_run else "added", json)


_PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER = {ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE), ResourceType.GROUP: (Operation.READ,)}


def _for_pattern(pattern: Pattern, wanted: Sequence[Operation], producer: bool, consumer: bool) -> Iterable[Operation]:
    resource = pattern.resource
    known = (Operation.ALL, *supported_operations(resource))
    for each in wanted:
        if each not in known:
            raise UsageProblem(f"{title(each)} is no operation on a {_shown(resource)}: {', '.join(map(title, known))}")
    of_producer = _PRODUCER.get(resource, ()) if producer else ()
    of_consumer = _CONSUMER.get(resource, ()) if consumer else ()
    return dict.fromkeys((*wanted, *of_producer, *of_consumer))


@app.command("list")
@with_option_groups
def list_rules(
    *,
    principal: Principals = [],  # noqa: B006
    named: ResourceOptions,
    match: Annotated[
        bool, typer.Option("--match", help="Also the rules for prefixes of these names, and those for all names.")
    ] = False,
    store: StoreOptions,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """List rules: all, or those with these names and principals."""
    resources = named.resources()
    _check_principals(principal)
    kind = PatternType.MATCH if match else PatternType.ANY
    patterns = [PatternFilter(resource, name, kind) for resource, name in resources.names] or [PatternFilter()]
    entries = [EntryFilter(each) for each in principal] or [EntryFilter()]
    with _rules_at(store.place(), bootstrap) as admin:
        found = {rule for each in product(patterns, entries) for rule in admin.describe_acls(BindingFilter(*each))}
    _print(sorted(found), "", json)


@app.command()
@with_option_groups
def remove(
    *,
    principal: Principals = [],  # noqa: B006
    operation: Operations = [],  # noqa: B006
    host: Hosts = [],  # noqa: B006
    named: ResourceOptions,
    prefixed: Prefixed = False,
    deny: Annotated[bool, typer.Option("--deny", help="Only rules that deny.")] = False,
    allow: Annotated[bool, typer.Option("--allow", help="Only rules that allow.")] = False,
    all_rules: Annotated[bool, typer.Option("--all", help="All rules, if nothing else is named.")] = False,
    store: StoreOptions,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Remove the rules that have these names, principals, hosts and operations. What is not named may be anything."""
    resources = named.resources(is_prefixed=prefixed)
    wanted = _operations(operation)
    _check_principals(principal)
    if allow and deny:
        raise UsageProblem("--allow and --deny exclude each other")
    if not (resources.names or principal or host or wanted or allow or deny or all_rules):
        raise UsageProblem("name the rules to remove, or give --all")
    permission = Permission.ALLOW if allow else Permission.DENY if deny else Permission.ANY
    patterns = [PatternFilter(*each) for each in resources.patterns()] or [
        PatternFilter(kind=PatternType.PREFIXED if prefixed else PatternType.ANY)
    ]
    filters = [
        BindingFilter(pattern, EntryFilter(who, where, what, permission))
        for pattern in patterns
        for who in principal or (None,)
        for where in host or (None,)
        for what in wanted or [Operation.ANY]
    ]
    with _rules_at(store.place(), bootstrap) as admin:
        if dry_run:
            rules = sorted({rule for each in filters for rule in admin.describe_acls(each)})
        else:
            rules = admin.delete_acls(filters)
    _print(rules, "would remove" if dry_run else "removed", json)


@contextmanager
def _rules_at(place: StorePlace | None, bootstrap: str) -> Iterator[AclAdmin | StoredRules]:
    """The rules of a running cluster, or those in a metadata store."""
    if place is None:
        with cluster_of(bootstrap) as access:
            yield AclAdmin(access)
        return
    try:
        yield StoredRules(place)
    except MigrationRefused as refused:
        raise OSError(str(refused)) from None


def _check_principals(given: Iterable[str]) -> None:
    for each in given:
        kind, colon, name = each.partition(":")
        if not (kind and colon and name):
            raise UsageProblem(f"--principal {each!r} is not TYPE:NAME: did you mean 'User:{each}'?")


def _operations(given: Iterable[str]) -> list[Operation]:
    known = {_plain(each.name): each for each in Operation if each is not Operation.ANY}
    found: list[Operation] = []
    for each in given:
        if _plain(each) not in known:
            raise UsageProblem(f"--operation {each!r} is not one of {', '.join(map(title, known.values()))}")
        found.append(known[_plain(each)])
    return found


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").upper()


def _shown(resource: ResourceType) -> str:
    return resource.name.lower().replace("_", " ")


def _print(rules: Sequence[Binding], done: str, as_json: bool) -> None:
    if as_json:
        listed: list[Json] = [_as_json(each) for each in rules]
        print_json({"rules": listed, "dry_run": done.startswith("would")} if done else listed)
        return
    if done:
        print(f"{done} {len(rules)} {'rule' if len(rules) == 1 else 'rules'}")
    if rules:
        rows = [
            (title(entry.permission), entry.principal, entry.host, title(entry.operation), *_row(pattern))
            for pattern, entry in rules
        ]
        print_table(["", "PRINCIPAL", "HOST", "OPERATION", "RESOURCE", "NAME"], rows)


def _row(pattern: Pattern) -> tuple[str, str]:
    is_prefix = pattern.kind is PatternType.PREFIXED
    return _shown(pattern.resource), f"{pattern.name} (prefix)" if is_prefix else pattern.name


def _as_json(rule: Binding) -> dict[str, Json]:
    pattern, entry = rule
    return {
        "resource": title(pattern.resource),
        "name": pattern.name,
        "pattern": title(pattern.kind),
        "principal": entry.principal,
        "host": entry.host,
        "operation": title(entry.operation),
        "permission": title(entry.permission),
    }
