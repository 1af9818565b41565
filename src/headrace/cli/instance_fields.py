"""The options of `headrace instance` that set fields of an instance."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import typer

from headrace.cli.quantities import duration_ms, size
from headrace.cli.shared import UsageProblem
from headrace.instances.definition import ENTITY_LIMITS

NONE = "none"
"""Removes a limit, or empties a list."""


class InstanceOptions(NamedTuple):
    """The options that set fields of an instance, as they are given; None for those that are not."""

    bytes_in: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Bytes produced a second, over all brokers.")
    ] = None
    bytes_out: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Bytes consumed a second, over all brokers.")
    ] = None
    burst_seconds: Annotated[
        float | None, typer.Option(metavar="N", help="Seconds of the limits that may flow at once; 1.")
    ] = None
    capacity: Annotated[
        str | None, typer.Option(metavar="BYTES", help="What its topics may hold, with all replicas.")
    ] = None
    counts_replicas: Annotated[
        bool | None,
        typer.Option("--count-replicas/--count-once", help="Whether each replica counts towards the capacity."),
    ] = None
    when_full: Annotated[
        str | None, typer.Option(metavar="WAY", help="When the capacity is used up: refuse produces, or throttle them.")
    ] = None
    topics_max: Annotated[str | None, typer.Option(metavar="N", help="How many topics it may have.")] = None
    partitions_max: Annotated[str | None, typer.Option(metavar="N", help="How many partitions it may have.")] = None
    groups_max: Annotated[str | None, typer.Option(metavar="N", help="How many groups it may have.")] = None
    connections_max: Annotated[str | None, typer.Option(metavar="N", help="How many connections to each broker.")] = (
        None
    )
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME=N",
            help="How many users, acls, quotas, group-configs, transactional-ids, producers or member-bytes it may "
            "have, as users=5000; repeatable.",
        ),
    ] = None
    retention_min: Annotated[
        str | None, typer.Option(metavar="TIME", help="The shortest retention.ms of its topics.")
    ] = None
    retention_max: Annotated[
        str | None, typer.Option(metavar="TIME", help="The longest retention.ms of its topics.")
    ] = None
    retention_bytes_max: Annotated[
        str | None, typer.Option(metavar="BYTES", help="The largest retention.bytes of its topics.")
    ] = None
    brokers: Annotated[
        str | None,
        typer.Option(metavar="IDS", help="The brokers that hold its partitions, as 1,2; all if it is not given."),
    ] = None
    protocol: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, for its own listener."),
    ] = None
    port: Annotated[
        int | None, typer.Option(metavar="N", help="The port of its listener on each broker; 0, the default, is any.")
    ] = None
    listener: Annotated[
        bool | None,
        typer.Option("--listener/--no-listener", help="Whether it has a listener of its own, beside the shared one."),
    ] = None
    address: Annotated[
        list[str] | None,
        typer.Option("--address", metavar="ID=HOST:PORT", help="Where its listener of one broker is; repeatable."),
    ] = None
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="CIDR", help="A network that may connect; repeatable.")
    ] = None
    deny: Annotated[
        list[str] | None, typer.Option("--deny", metavar="CIDR", help="A network that may not connect; repeatable.")
    ] = None
    admin: Annotated[
        list[str] | None, typer.Option("--admin", metavar="USER", help="One of its users that may do everything in it.")
    ] = None
    principal: Annotated[
        list[str] | None,
        typer.Option(
            "--principal",
            metavar="PATTERN",
            help="Who may enter by a certificate, a token or a ticket, as 'CN=*,OU=acme,O=Example'; repeatable.",
        ),
    ] = None
    reliable: Annotated[
        bool | None,
        typer.Option("--reliable/--not-reliable", help="Whether its topics are reliable (headrace.reliable)."),
    ] = None


_SIZES = ("bytes_in", "bytes_out", "capacity", "retention_bytes_max")
_COUNTS = ("topics_max", "partitions_max", "groups_max", "connections_max")
_LISTS = {"address": "addresses", "allow": "allow", "deny": "deny", "admin": "admins", "principal": "principals"}
_PLAIN = ("burst_seconds", "counts_replicas", "when_full", "protocol", "port", "reliable")


def fields_of(options: InstanceOptions) -> dict[str, object]:
    """The fields of an instance that the options set. Raises `UsageProblem`."""
    given = options._asdict()
    fields: dict[str, object] = {name: given[name] for name in _PLAIN if given[name] is not None}
    readers: list[tuple[str, str, Callable[[str, str], object]]] = [
        *((name, name, size) for name in _SIZES),
        *((name, name, _count) for name in _COUNTS),
        ("retention_min", "retention_ms_min", duration_ms),
        ("retention_max", "retention_ms_max", duration_ms),
    ]
    for parameter, field, read in readers:
        text = given[parameter]
        if isinstance(text, str):
            fields[field] = None if text == NONE else read(f"--{parameter.replace('_', '-')}", text)
    for parameter, field in _LISTS.items():
        values = given[parameter]
        if isinstance(values, list):
            fields[field] = [] if values == [NONE] else values
    for each in options.limit or ():
        name, _, text = each.partition("=")
        field = f"{name.replace('-', '_')}_max"
        if field not in ENTITY_LIMITS:
            known = ", ".join(each.removesuffix("_max").replace("_", "-") for each in ENTITY_LIMITS)
            raise UsageProblem(f"--limit {each!r} is none of {known}, as users=5000")
        read_limit = size if field == "member_bytes_max" else _count
        fields[field] = None if text == NONE else read_limit(f"--limit {name}", text)
    if isinstance(brokers := given["brokers"], str):
        fields["brokers"] = [] if brokers == NONE else [_count("--brokers", each) for each in brokers.split(",")]
    if (listener := given["listener"]) is not None:
        if not listener and given["port"] is not None:
            raise UsageProblem("--port and --no-listener exclude each other")
        fields.setdefault("port", 0)
        if not listener:
            fields["port"] = None
    return fields


def _count(option: str, text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdecimal() and len(text) < 20):
        raise UsageProblem(f"{option} {text!r} is not a number")
    return int(text)
