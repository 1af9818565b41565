"""`headrace transaction list|describe|find-hanging|abort`."""

import time
from typing import Annotated

import typer

from headrace.cli.output import Json, print_json, print_table
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, DryRun, UsageProblem, cluster_of
from headrace.client.operations.transaction_admin import (
    OpenTransaction,
    TransactionAdmin,
    TransactionFilter,
    partitions_of,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.printable import printable
from headrace.types import BrokerId, TopicPartition

app = typer.Typer(no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID")]
MAX_TIMEOUT_MS = 900_000
"""The default of the broker's `transaction.max.timeout.ms`."""


@app.command("list")
def list_transactions(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only this state, as `Ongoing`; repeatable.")
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", metavar="ID", help="Only this producer id; repeatable.")
    ] = None,
    longer_than: Annotated[
        int, typer.Option("--longer-than", metavar="MS", help="Only transactions open for longer, in milliseconds.")
    ] = -1,
    pattern: Annotated[
        str,
        typer.Option("--pattern", metavar="REGEX", help="Only transactional ids that match this regular expression."),
    ] = "",
    json: AsJson = False,
) -> None:
    """List transactional ids with their coordinators."""
    wanted = TransactionFilter(tuple(state or ()), tuple(producer_id or ()), longer_than, pattern or None)
    with cluster_of(bootstrap) as cluster:
        found = TransactionAdmin(cluster).list_transactions(wanted)
    if json:
        print_json([each._asdict() for each in found])
    else:
        print_table(["TRANSACTIONAL ID", "COORDINATOR", "PRODUCER ID", "STATE"], found)


@app.command()
def describe(transactional_id: Id, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: AsJson = False) -> None:
    """Show the transaction of a transactional id and its partitions."""
    with cluster_of(bootstrap) as cluster:
        found = TransactionAdmin(cluster).describe_transaction(transactional_id)
    open_ms = max(0, _now_ms() - found.started_ms) if found.started_ms >= 0 else None
    if json:
        partitions: list[Json] = [str(each) for each in found.partitions]
        print_json({**found._asdict(), "open_ms": open_ms, "partitions": partitions})
        return
    print(
        f"transactional id {printable(found.transactional_id)}  {found.state}  "
        f"producer {found.producer_id}, epoch {found.producer_epoch}  time-out {found.timeout_ms} ms"
        + ("" if open_ms is None else f"  open for {open_ms} ms")
    )
    print_table(["TOPIC", "PARTITION"], found.partitions)


@app.command("find-hanging")
def find_hanging(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    broker: Annotated[
        int | None, typer.Option("--broker", metavar="ID", help="Search the replicas of this broker.")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Search this topic; repeatable.")
    ] = None,
    max_timeout: Annotated[
        int,
        typer.Option(
            "--max-timeout", metavar="MS", help="The brokers' transaction.max.timeout.ms: younger ones do not hang."
        ),
    ] = MAX_TIMEOUT_MS,
    json: AsJson = False,
) -> None:
    """Find transactions that are open in a partition, and that no coordinator knows."""
    if broker is None and not topic:
        raise UsageProblem("find-hanging requires --broker or --topic, which limit the search")
    with cluster_of(bootstrap) as cluster:
        at = None if broker is None else BrokerId(broker)
        partitions = partitions_of(cluster, sorted(set(topic)) if topic else None, at)
        found = TransactionAdmin(cluster).find_hanging(partitions, max_timeout, _now_ms(), at)
    if json:
        print_json([_row(each) for each in found])
    else:
        rows = [list(_row(each).values()) for each in found]
        print_table([each.replace("_", " ").upper() for each in _COLUMNS], rows)


@app.command()
def abort(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION")],
    start_offset: Annotated[
        int, typer.Option("--start-offset", metavar="OFFSET", help="The first offset of the transaction.")
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Abort a hanging transaction in one partition, as find-hanging shows it. Its coordinator is not asked: a
    transaction that does not hang may lose records of a commit."""
    where = TopicPartition(topic, partition)
    with cluster_of(bootstrap) as cluster:
        admin = TransactionAdmin(cluster)
        starting = [each for each in admin.open_transactions([where]) if each.start_offset == start_offset]
        if not starting:
            raise KafkaError(
                f"{where} has no open transaction that starts at offset {start_offset}", ErrorCode.INVALID_TXN_STATE
            )
        if not dry_run:
            admin.abort(starting[0])
    if json:
        print_json({**_row(starting[0]), "dry_run": dry_run})
    else:
        print(
            f"{'would abort' if dry_run else 'aborted'} the transaction of producer {starting[0].producer_id} "
            f"that starts at offset {start_offset} of {printable(str(where))}"
        )


_COLUMNS = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "start_offset",
    "last_timestamp_ms",
)


def _row(found: OpenTransaction) -> dict[str, Json]:
    return dict(zip(_COLUMNS, (*found.partition, *found[1:]), strict=True))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
