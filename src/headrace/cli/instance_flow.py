"""`headrace instance why|usage`: why an instance is throttled, and what flows through all of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.output import Json, print_json, print_table
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, cluster_of
from headrace.client.operations.instance_flow_admin import ClusterFlow, InstanceFlowAdmin
from headrace.printable import printable
from headrace.types import BrokerId

if TYPE_CHECKING:
    from rich.table import Table

TOP_COUNT = 20
_DIRECTIONS = ("in", "out")
_HEADINGS = ("INSTANCE", "IN/S", "LIMIT", "OUT/S", "LIMIT", "THROTTLED IN", "OUT", "STORED", "CAPACITY", "STATE")


def why(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The instance.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Explain why an instance is throttled: limits, allotments per broker, and the clients that had to wait."""
    with cluster_of(bootstrap) as cluster:
        flow = InstanceFlowAdmin(cluster).describe_flow([name])
    if json:
        print_json(_why_as_json(name, flow))
        return
    for direction in _DIRECTIONS:
        _print_direction(name, direction, flow)
    _print_groups(name, flow)
    _print_storage(name, flow)
    if flow.silent:
        print(f"brokers that did not answer: {', '.join(map(str, flow.silent))}")


def usage(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The instance; all when left out.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Print the table once, and exit.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between two looks.")] = 1.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Show what flows through instances and what they store, as a table that is kept up to date."""
    names = None if name is None else [name]
    with cluster_of(bootstrap) as cluster:
        admin = InstanceFlowAdmin(cluster)
        flow = admin.describe_flow(names)
        if json:
            print_json([_used(each, flow) for each in flow.names])
        elif once:
            print_table(_HEADINGS, [_row(each, flow) for each in flow.names])
        else:
            _live(admin, names, flow, every)


def _live(admin: InstanceFlowAdmin, names: list[str] | None, flow: ClusterFlow, every: float) -> None:
    from rich.live import Live

    try:
        with Live(_table(flow), auto_refresh=False) as live:
            while True:
                time.sleep(every)
                live.update(_table(admin.describe_flow(names)), refresh=True)
    except KeyboardInterrupt:
        return


def _table(flow: ClusterFlow) -> Table:
    from rich.table import Table

    table = Table(*_HEADINGS)
    for name in flow.names:
        table.add_row(*map(str, _row(name, flow)))
    return table


# ---- usage


def _used(name: str, flow: ClusterFlow) -> dict[str, Json]:
    brokers = list(flow.of(name).values())
    used: dict[str, Json] = {"name": name}
    for direction in _DIRECTIONS:
        used[f"bytes_{direction}_per_s"] = sum(each[direction]["bytes_per_s"] for each in brokers)
        used[f"limit_{direction}"] = brokers[0][direction]["limit"]
        used[f"bytes_{direction}_total"] = sum(each[direction]["total"] for each in brokers)
        used[f"throttled_{direction}_share"] = max(each[direction].get("throttled_s", 0.0) for each in brokers)
        used[f"connections_held_{direction}"] = sum(each[direction].get("held", 0) for each in brokers)
    return {
        **used,
        "stored": sum(each["stored_here"] for each in brokers),
        "capacity": brokers[0]["capacity"],
        "is_full": any(each["is_full"] for each in brokers),
        "refused": sum(each["refused"] for each in brokers),
        "silent_brokers": list(flow.silent),
    }


def _row(name: str, flow: ClusterFlow) -> tuple[object, ...]:
    used: dict[str, Any] = _used(name, flow)
    state = "full" if used["is_full"] else "throttled" if _is_throttled(used) else "ok"
    return (
        printable(name),
        _size(used["bytes_in_per_s"]),
        _size(used["limit_in"]),
        _size(used["bytes_out_per_s"]),
        _size(used["limit_out"]),
        _percent(used["throttled_in_share"]),
        _percent(used["throttled_out_share"]),
        _size(used["stored"]),
        _size(used["capacity"]),
        state,
    )


def _is_throttled(used: Mapping[str, Any]) -> bool:
    return any(used[f"throttled_{each}_share"] or used[f"connections_held_{each}"] for each in _DIRECTIONS)


# ---- why


def _why_as_json(name: str, flow: ClusterFlow) -> dict[str, Json]:
    brokers: dict[str, Json] = {}
    for broker, found in flow.of(name).items():
        brokers[str(broker)] = {key: value for key, value in found.items() if key != "controller"}
    return {
        "name": name,
        "usage": _used(name, flow),
        "shared_out": flow.shared_out(name),
        "brokers": brokers,
        "clients": {each: _top(name, flow, each, "clients") for each in _DIRECTIONS},
        "partitions": {each: _top(name, flow, each, "partitions") for each in _DIRECTIONS},
    }


def _top(name: str, flow: ClusterFlow, direction: str, kind: str) -> list[tuple[str, float]]:
    """Who was held the longest, over all brokers."""
    sums: dict[str, float] = {}
    for found in flow.of(name).values():
        for key, seconds in found.get(direction, {}).get(kind, ()):
            sums[key] = sums.get(key, 0.0) + seconds
    return sorted(sums.items(), key=lambda item: -item[1])[:TOP_COUNT]


def _print_direction(name: str, direction: str, flow: ClusterFlow) -> None:
    used: dict[str, Any] = _used(name, flow)
    flows = _size(used[f"bytes_{direction}_per_s"])
    limit = used[f"limit_{direction}"]
    if limit is None:
        print(f"bytes {direction}: {flows}/s, not limited")
        return
    print(f"bytes {direction}: {flows}/s of {_size(limit)}/s")
    shared = flow.shared_out(name)
    standing = None if shared is None else shared[direction]
    if shared is None or standing is None:
        print("  the controller did not say how the limit is shared out; without it, by partitions")
        allotted: Mapping[BrokerId, Mapping[str, Any]] = {}
    else:
        print(f"  {standing['branch']} ({shared['allocator']}), for {standing['for_s']:.0f} s")
        allotted = {BrokerId(each["broker_id"]): each for each in standing["brokers"]}
    rows = []
    for broker, found in flow.of(name).items():
        here, told = found[direction], allotted.get(broker, {})
        rows.append(
            (
                broker,
                told.get("partitions", "-"),
                _size(here.get("fair")),
                _size(told.get("allotted")),
                _size(here.get("rate")),
                _size(here["bytes_per_s"]),
                _size(told.get("demand")),
                _percent(here.get("throttled_s", 0.0)),
                here.get("held", 0),
            )
        )
    headings = (
        "BROKER", "LEADS", "BY PARTITIONS", "ALLOTTED", "IN FORCE", "FLOWS", "DEMAND", "THROTTLED", "CONNECTIONS HELD",
    )  # fmt: skip
    print_table(headings, rows)
    for kind, heading in (("clients", "CLIENT"), ("partitions", "PARTITION")):
        top = _top(name, flow, direction, kind)
        if top:
            print_table((heading, "SECONDS HELD"), [(key or "-", f"{seconds:.1f}") for key, seconds in top])


def _print_groups(name: str, flow: ClusterFlow) -> None:
    """What groups commit and say of themselves is limited, and has hardly ever to wait."""
    found = [each.get("groups") or {} for each in flow.of(name).values()]
    held, told = sum(each.get("held", 0) for each in found), sum(each.get("told_count", 0) for each in found)
    if not held and not told:
        return
    print(f"groups: {told} commits and other requests had to wait, {held} connections are held")
    top = _top(name, flow, "groups", "clients")
    if top:
        print_table(("CLIENT", "SECONDS HELD"), [(key or "-", f"{seconds:.1f}") for key, seconds in top])


def _print_storage(name: str, flow: ClusterFlow) -> None:
    used: dict[str, Any] = _used(name, flow)
    if used["capacity"] is None:
        print(f"stored: {_size(used['stored'])}, not limited")
        return
    share = _percent(used["stored"] / used["capacity"])
    print(f"stored: {used['stored']} of {used['capacity']} bytes ({share}), {used['refused']} produces refused")
    if used["is_full"]:
        print("  full: production is blocked, consumption goes on; delete topics or records, shorten the retention, or")
        print(f"  raise the capacity: headrace instance alter {name} --capacity BYTES")


def _size(count: float | None) -> str:
    if count is None:
        return "-"
    value, unit = float(count), ""
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f}" if not unit else f"{value:.1f}{unit}"


def _percent(share: float) -> str:
    return f"{min(share, 9.99) * 100:.0f}%"
