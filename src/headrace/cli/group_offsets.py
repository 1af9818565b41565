"""`headrace group reset|forget`: sets or deletes the committed offsets of groups.

    headrace group reset readers --topic flights --to beginning
    headrace group reset readers --topic flights:0,2 --to @2013-06-01
    headrace group reset readers --all-topics --shift-by -100 --dry-run
    headrace group reset readers --all-topics --to current --export > offsets.csv
    headrace group reset readers --from-file offsets.csv

Every way of `kafka-consumer-groups --reset-offsets`, in the same file format. As there, a group must have no members,
and an offset beyond a partition's ends becomes that end.
"""

import csv
import io
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.output import print_json, print_table
from headrace.cli.places import END, StartPlace, parse_place, resolve
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, UsageProblem, cluster_of
from headrace.client.operations.admin import Admin
from headrace.client.operations.group_admin import GroupAdmin
from headrace.client.operations.group_kinds import SHARE
from headrace.errors import ErrorCode, KafkaError
from headrace.printable import printable
from headrace.types import Offset, TopicPartition

Offsets = dict[TopicPartition, Offset]
Way = Callable[[Admin, GroupAdmin, str, list[TopicPartition]], Offsets]
"""Computes a group's new offsets of some partitions."""

_INACTIVE = ("Empty", "Dead", "")
_DURATION = re.compile(
    r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII | re.IGNORECASE
)
_SECONDS = (86_400, 3600, 60, 1)

Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC[:N,...]", help="A topic, or some of its partitions; repeatable."),
]
AllTopics = Annotated[bool, typer.Option("--all-topics", help="Every topic that the group has offsets for.")]


def reset(
    names: Annotated[list[str] | None, typer.Argument(metavar="[GROUP...]")] = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="Every group.")] = False,
    topics: Topics = None,
    all_topics: AllTopics = False,
    to: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="beginning, end, an offset N, -N (N before the end), @TIME, or current."),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="N", help="Move the committed offsets by N records, back if negative.")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(metavar="DURATION", help="To the records of this long ago, such as P7D or PT1H30M.")
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="To the offsets in a file that --export printed.")
    ] = None,
    export: Annotated[bool, typer.Option("--export", help="Print the offsets as CSV, and change nothing.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Set the committed offsets of groups that have no members."""
    if bool(names) == all_groups:
        raise UsageProblem("name groups, or give --all-groups")
    stored = _read_file(from_file, names or []) if from_file is not None else {}
    if from_file is None and bool(topics) == all_topics:
        raise UsageProblem("give --topic or --all-topics")
    way = _way(to, shift_by, by_duration, stored if from_file is not None else None)
    found: dict[str, Offsets] = {}
    with cluster_of(bootstrap) as cluster:
        admin, groups = Admin(cluster), GroupAdmin(cluster)
        for name in names or [each.group_id for each in groups.list_groups() if each.kind != SHARE]:
            _check_inactive(groups, name)
            partitions = sorted(stored[name]) if from_file else _partitions(admin, groups, name, topics, all_topics)
            found[name] = way(admin, groups, name, partitions)
        if not dry_run and not export:
            for name, offsets in found.items():
                groups.commit(name, offsets)
    _show(found, as_csv=export, as_json=json)


def forget(
    name: Annotated[str, typer.Argument(metavar="GROUP")],
    topics: Topics = None,
    all_topics: AllTopics = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Delete the committed offsets of a group for topics that no member of it subscribes to."""
    if bool(topics) == all_topics:
        raise UsageProblem("give --topic or --all-topics")
    with cluster_of(bootstrap) as cluster:
        groups = GroupAdmin(cluster)
        committed = groups.offsets(name)
        wanted = set(_partitions(Admin(cluster), groups, name, topics, all_topics))
        found = {partition: offset for partition, offset in committed.items() if partition in wanted}
        if not dry_run and found:
            groups.delete_offsets(name, found)
    _show({name: found}, as_csv=False, as_json=json)


# Ways


def _way(to: str | None, shift_by: int | None, by_duration: str | None, stored: Mapping[str, Offsets] | None) -> Way:
    given = [each for each in (to, shift_by, by_duration, stored) if each is not None]
    if len(given) != 1:
        raise UsageProblem("give one of --to, --shift-by, --by-duration and --from-file")
    if stored is not None:
        return lambda admin, _groups, name, partitions: _within(
            admin, {each: stored[name][each] for each in partitions}
        )
    if shift_by is not None:
        return lambda admin, groups, name, partitions: _shifted(admin, groups, name, partitions, shift_by)
    if to == "current":
        return _current
    place = parse_place("--to", to) if to is not None else StartPlace(None, _ago_ms(by_duration or ""))
    return lambda admin, _groups, _name, partitions: resolve(admin, place, partitions)


def _current(admin: Admin, groups: GroupAdmin, name: str, partitions: list[TopicPartition]) -> Offsets:
    """The committed offsets; the end of a partition without one."""
    committed = groups.offsets(name)
    ends = resolve(admin, END, [each for each in partitions if each not in committed])
    return {**_within(admin, {each: committed[each] for each in partitions if each in committed}), **ends}


def _shifted(admin: Admin, groups: GroupAdmin, name: str, partitions: list[TopicPartition], shift_by: int) -> Offsets:
    committed = groups.offsets(name)
    missing = [each for each in partitions if each not in committed]
    if missing:
        raise KafkaError(
            f"{missing[0]} cannot be shifted: group {name} has no committed offset for it. Name an offset with --to",
            ErrorCode.INVALID_REQUEST,
        )
    return _within(admin, {each: Offset(committed[each] + shift_by) for each in partitions})


def _within(admin: Admin, offsets: Mapping[TopicPartition, Offset]) -> Offsets:
    """The offsets, moved to the ends of their partitions where they are beyond."""
    marks = admin.watermarks(offsets)
    return {each: Offset(max(start, min(end, offsets[each]))) for each, (start, end) in marks.items()}


def _ago_ms(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise UsageProblem(f"--by-duration {text!r}: expected an ISO 8601 duration, such as P7D or PT1H30M")
    seconds = sum(float(each) * unit for each, unit in zip(found.groups(), _SECONDS, strict=True) if each)
    return max(0, time.time_ns() // 1_000_000 - int(seconds * 1000))


# Groups, partitions and files


def _check_inactive(groups: GroupAdmin, name: str) -> None:
    kind = groups.kind_of(name)
    if kind == SHARE:
        raise KafkaError(f"{name} is a share group: reset it with kafka-share-groups", ErrorCode.INVALID_REQUEST)
    state = groups.describe_group(name, kind).state
    if state not in _INACTIVE:
        raise KafkaError(
            f"offsets can only be reset while a group has no members, but group {name} is {state}: stop its members",
            ErrorCode.NON_EMPTY_GROUP,
        )


def _partitions(
    admin: Admin, groups: GroupAdmin, name: str, topics: Iterable[str] | None, all_topics: bool
) -> list[TopicPartition]:
    if all_topics:
        return sorted(groups.offsets(name))
    found: dict[TopicPartition, None] = {}
    for text in topics or ():
        topic, colon, numbers = text.partition(":")
        known = admin.partitions_of(topic)
        chosen = set(numbers.split(",")) if colon else {str(each.partition) for each in known}
        unknown = chosen - {str(each.partition) for each in known}
        if unknown:
            raise UsageProblem(f"--topic {text!r}: {topic} has partitions 0 to {len(known) - 1}")
        found.update((each, None) for each in known if str(each.partition) in chosen)
    return list(found)


def _read_file(path: Path, names: list[str]) -> dict[str, Offsets]:
    """The offsets by group, from `topic,partition,offset` of one group or `group,topic,partition,offset` of several."""
    found: dict[str, Offsets] = {name: {} for name in names}
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise UsageProblem(f"--from-file {path}: {error.strerror}") from None
    for number, row in enumerate(csv.reader(lines), 1):
        if not row:
            continue
        name = row[0] if len(row) == 4 else names[0] if len(names) == 1 else ""
        try:
            topic, partition, offset = row[-3:]
            where, to = TopicPartition(topic.strip(), int(partition)), Offset(int(offset))
        except ValueError:
            raise UsageProblem(
                f"--from-file {path}: line {number} is not TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET"
            ) from None
        if len(row) == 3 and not name:
            raise UsageProblem(f"--from-file {path}: line {number} names no group, and several groups are reset")
        if name in found:
            found[name][where] = to
    return found


def _show(found: Mapping[str, Offsets], *, as_csv: bool, as_json: bool) -> None:
    rows = [(name, each.topic, each.partition, at) for name, offsets in found.items() for each, at in offsets.items()]
    if as_json:
        print_json([dict(zip(("group", "topic", "partition", "offset"), row, strict=True)) for row in rows])
    elif as_csv:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(row if len(found) > 1 else row[1:] for row in rows)
        sys.stdout.write(text.getvalue())
    else:
        print_table(["GROUP", "TOPIC", "PARTITION", "OFFSET"], [(printable(row[0]), *row[1:]) for row in rows])
