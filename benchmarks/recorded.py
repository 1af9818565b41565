"""What `make bench` records: the benchmarks with their arguments, the goals they are measured for, and the results.

Each has a file of its own in benchmarks/results, so that one can be recorded again without the others. Each ends within
`LIMIT_S` on two cores. `{stem: Recorded}`, and a `Goal` is a row of the first table of docs/performance.md.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.paired import ratio_to

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LIMIT_S = 480.0
KAFKA, FLOOR = ratio_to("Apache Kafka"), ratio_to("floor")
FLOOR_TO_KAFKA = ratio_to("Apache Kafka", "floor")


class Recorded(NamedTuple):
    """A benchmark, or a part of one."""

    benchmark: str
    """Its path below benchmarks/, without .py."""
    title: str
    arguments: Sequence[str]


def _of(benchmark: str, title: str, arguments: str, *more: str) -> Recorded:
    return Recorded(benchmark, title, (*arguments.split(), *more))


_JAVA = "--rounds 5 --scale 0.5 --warm 60 --only"
RECORDED: Mapping[str, Recorded] = {
    "small_requests": _of("broker/small_requests", "Small requests", "--seconds 2 --rounds 5 --warm 60"),
    "small_requests_two_workers": _of(
        "broker/small_requests",
        "Small requests, two workers",
        "--workers 2 --connections 50 --seconds 2 --rounds 5 --warm 60",
    ),
    "java_clients_100_b": _of("broker/java_clients", "Java's clients, 100 B", _JAVA, "100 B"),
    "java_clients_1_kib": _of("broker/java_clients", "Java's clients, 1 KiB", _JAVA, "1 KiB"),
    "java_clients_10_kib": _of("broker/java_clients", "Java's clients, 10 KiB", _JAVA, "10 KiB"),
    "one_in_flight": _of("broker/one_in_flight", "One in flight", "--seconds 3 --rounds 5 --warm 60"),
    "transactions": _of("broker/transactions", "Transactions", "--rounds 5 --commits 2000"),
    "transactions_three_nodes": _of(
        "broker/transactions", "Transactions, three nodes", "--nodes 3 --rounds 3 --commits 300 --warm 150"
    ),
    "launch_and_memory": _of("broker/launch_and_memory", "Launch and memory", "--rounds 3 --gigabytes 1"),
    "fetch_floor": _of("broker/fetch_floor", "Fetches beside sendfile in C", "--rounds 40 --megabytes 128"),
    "replicated": _of("cluster/replicated", "Replicated produces of Java's client", "--rounds 3 --scale 0.4 --warm 60"),
    "replicated_requests": _of(
        "cluster/replicated_requests", "Replicated requests", "--rounds 3 --seconds 2 --warm 60"
    ),
    "group_joins": _of("coordination/groups", "Groups that join", "join --rounds 3"),
    "group_heartbeats": _of("coordination/groups", "Groups that heartbeat", "beats --rounds 3 --seconds 10"),
    "growth": _of("broker/growth", "Growth", "--rounds 3 --seconds 1"),
    "controller_change": _of("coordination/failover", "Change of controller", "--partitions 50000 --rounds 5"),
}
"""In the order of the page."""


class Bound(NamedTuple):
    """What one figure has to be, at least or at most; none is without `limit`."""

    label: str
    figure: str
    limit: float | None = None
    is_least: bool = False


class Goal(NamedTuple):
    """A row of the table of goals."""

    work: str
    stem: str
    case: str
    side: str
    """Whose figures: mostly the ratios to another side."""
    bounds: Sequence[Bound]
    before: str
    """What was reached before it was recorded."""


def _least(label: str, figure: str, limit: float) -> Bound:
    return Bound(label, figure, limit, is_least=True)


_SMALL = (_least("rate", "requests_per_s", 1.5), Bound("p99", "p99_ms", 0.5))
_FLOOR = (_least("rate", "requests_per_s", 0.65),)
_CPU = "broker_cpu_s"
_COMMITS = (_least("rate", "commits_per_s", 1.2), Bound("CPU", "brokers_cpu_s_per_1000", 0.5), Bound("p99", "p99_ms"))
_REQUESTS = (
    _least("rate", "requests_per_s", 2.5),
    Bound("CPU", "brokers_cpu_us_per_request", 0.25),
    Bound("p99", "p99_ms"),
)
_STREAM = (_least("rate", "records_per_s", 2.5), Bound("CPU", "brokers_cpu_s", 0.25), Bound("p99", "p99_ms"))
_FLOOR_REQUESTS = (Bound("rate", "requests_per_s"), Bound("CPU", "brokers_cpu_us_per_request"))
_FLOOR_STREAM = (Bound("rate", "records_per_s"), Bound("CPU", "brokers_cpu_s"))
_CONNECTIONS = {1: "1 connection", 10: "10 connections", 50: "50 connections", 500: "500 connections"}

GOALS: Sequence[Goal] = (
    *(
        Goal(f"one 100-byte record a request, acks=1, {name}", "small_requests", name, KAFKA, _SMALL, "")
        for name in _CONNECTIONS.values()
    ),
    *(
        Goal(f"the same beside the floor in C, {name}", "small_requests", name, FLOOR, _FLOOR, "")
        for name in _CONNECTIONS.values()
    ),
    Goal(
        "the same, 50 connections, `--workers 2`",
        "small_requests_two_workers",
        _CONNECTIONS[50],
        KAFKA,
        (_least("rate", "requests_per_s", 2.0), Bound("p99", "p99_ms"), Bound("CPU", "broker_cpu_us_per_request")),
        "rate 3.04 ×, p99 0.18 ×, CPU 0.24 ×",
    ),
    Goal(
        "Java's producer, default, acks=all, 100 B",
        "java_clients_100_b",
        "produce 100 B",
        KAFKA,
        (_least("rate", "records_per_s", 1.1), Bound("p99", "p99_ms", 0.7), Bound("CPU", _CPU, 0.5)),
        "rate 1.62 ×, p99 0.50 ×, CPU 0.10 ×",
    ),
    Goal(
        "the same, 1 KiB",
        "java_clients_1_kib",
        "produce 1 KiB",
        KAFKA,
        (_least("rate", "records_per_s", 1.1), Bound("p99", "p99_ms", 0.7), Bound("CPU", _CPU, 0.5)),
        "rate 1.21 ×, p99 0.72 ×, CPU 0.28 ×",
    ),
    Goal(
        "the same, 10 KiB",
        "java_clients_10_kib",
        "produce 10 KiB",
        KAFKA,
        (_least("rate", "records_per_s", 1.3), Bound("p99", "p99_ms"), Bound("CPU", _CPU, 0.3)),
        "rate 1.75 ×, p99 0.67 ×, CPU 0.24 ×",
    ),
    Goal(
        "Java's consumer, 1 KiB",
        "java_clients_1_kib",
        "consume 1 KiB",
        KAFKA,
        (_least("rate", "records_per_s", 1.0), Bound("CPU", _CPU, 0.6)),
        "rate 1.42 ×, CPU 0.42 ×",
    ),
    Goal(
        "one 1 KiB record in flight, acks=all, franz-go",
        "one_in_flight",
        "one record in flight",
        KAFKA,
        (Bound("p50", "p50_ms", 0.5), Bound("p99", "p99_ms", 0.7)),
        "",
    ),
    Goal(
        "Java's producer, transactions of ten 1 KiB records",
        "transactions",
        "transactions, one broker",
        KAFKA,
        _COMMITS,
        "rate 3.1 ×, CPU 0.36 ×, p99 0.40 ×",
    ),
    Goal(
        "the same, three brokers, replication 3",
        "transactions_three_nodes",
        "transactions, three brokers",
        KAFKA,
        _COMMITS,
        "rate 1.80 ×, CPU 0.21 ×, p99 0.51 ×",
    ),
    Goal(
        "launch to first acknowledged record",
        "launch_and_memory",
        "launch",
        KAFKA,
        (Bound("time", "first_record_s", 0.2),),
        "",
    ),
    Goal(
        "resident memory, idle; after 1 GB",
        "launch_and_memory",
        "resident memory",
        KAFKA,
        (Bound("idle", "idle_mib", 1 / 6), Bound("loaded", "loaded_mib", 1 / 6)),
        "",
    ),
    Goal(
        "fetches of a mebibyte beside `sendfile` in C",
        "fetch_floor",
        "fetch",
        FLOOR,
        (_least("rate", "megabytes_per_s", 0.9), Bound("CPU", "cpu_s_per_gigabyte")),
        "rate 1.03 × and 0.93 ×, CPU 1.01 × and 1.19 ×, in two runs",
    ),
    Goal(
        "Java's producer, acks=all, three brokers, tuned",
        "replicated",
        "tuned",
        KAFKA,
        _STREAM,
        "rate 2.55 × and 2.36 ×, CPU 0.19 × and 0.21 ×, in two runs",
    ),
    Goal(
        "the same, default settings",
        "replicated",
        "default",
        KAFKA,
        _STREAM,
        "rate 1.6 ×, CPU 0.42 ×, p99 0.57 ×",
    ),
    *(
        Goal(
            f"the floor in C beside Apache Kafka, acks=all, three brokers, Java's producer, {work}",
            "replicated",
            work,
            FLOOR_TO_KAFKA,
            _FLOOR_STREAM,
            before,
        )
        for work, before in (("tuned", "rate 2.1 × (1.6 to 3.4), CPU 0.17 ×"), ("default", "rate 4.1 ×, CPU 0.09 ×"))
    ),
    *(
        Goal(
            f"acks=all, three brokers, a request of {size}, {name}",
            "replicated_requests",
            f"{batch}, {name}",
            KAFKA,
            _REQUESTS,
            before,
        )
        for batch, size, name, before in (
            ("100 B", "one 100-byte record", _CONNECTIONS[1], "rate 2.7 ×, CPU 0.22 ×, p99 0.34 ×"),
            ("100 B", "one 100-byte record", _CONNECTIONS[10], "rate 3.1 ×, CPU 0.25 ×, p99 0.32 ×"),
            ("100 B", "one 100-byte record", _CONNECTIONS[50], "rate 2.2 ×, CPU 0.31 ×, p99 0.81 ×"),
            ("15 KiB", "15 records of 1 KiB", _CONNECTIONS[1], "rate 1.0 ×, CPU 0.73 ×, p99 0.53 ×"),
            ("15 KiB", "15 records of 1 KiB", _CONNECTIONS[10], "rate 1.7 ×, CPU 0.44 ×, p99 0.66 ×"),
            ("15 KiB", "15 records of 1 KiB", _CONNECTIONS[50], "rate 1.7 ×, CPU 0.47 ×, p99 0.62 ×"),
        )
    ),
    *(
        Goal(
            f"the floor in C beside Apache Kafka, acks=all, three brokers, {batch}, {_CONNECTIONS[count]}",
            "replicated_requests",
            f"{batch}, {_CONNECTIONS[count]}",
            FLOOR_TO_KAFKA,
            _FLOOR_REQUESTS,
            before,
        )
        for batch, count, before in (
            ("100 B", 1, "rate 4.8 ×, CPU 0.12 ×"),
            ("100 B", 10, "rate 11.8 ×, CPU 0.05 ×"),
            ("100 B", 50, "rate 4.5 ×, CPU 0.12 ×"),
            ("15 KiB", 1, "rate 5.6 ×, CPU 0.12 ×"),
            ("15 KiB", 10, "rate 5.3 ×, CPU 0.11 ×"),
            ("15 KiB", 50, "rate 3.0 ×, CPU 0.22 ×"),
        )
    ),
    Goal(
        "1,000 members join a group, KIP-848",
        "group_joins",
        "KIP-848",
        KAFKA,
        (Bound("time", "join_s", 1.0), Bound("CPU", _CPU)),
        "time 0.41 ×",
    ),
    Goal(
        "the same, classic protocol",
        "group_joins",
        "classic",
        KAFKA,
        (Bound("time", "join_s", 1.0), Bound("CPU", _CPU)),
        "time 0.995 ×, CPU 0.45 ×",
    ),
    Goal(
        "a paced produce while 1,000 groups of 3 members heartbeat, beside one without them",
        "group_heartbeats",
        "headrace",
        ratio_to("without heartbeats"),
        (Bound("p99", "p99_ms", 1.5),),
        "p99 2.0 × (missed; Apache Kafka 1.3 ×)",
    ),
    Goal(
        "5,000 idle connections, 10,000 partitions and 1,000 groups, beside a broker without them",
        "growth",
        "and 1,000 groups",
        ratio_to("small"),
        (Bound("p99", "produce_p99_ms", 2.0), Bound("CPU", "produce_cpu_us")),
        "p99 1.13 ×, CPU 1.13 ×",
    ),
    Goal(
        "memory of an idle connection, of a partition without records, in bytes",
        "growth",
        "memory",
        "headrace",
        (Bound("connection", "connection_bytes", 4096), Bound("partition", "partition_bytes", 6144)),
        "connection 2,209, partition 4,995",
    ),
    *(
        Goal(
            f"a new controller has told three simulated brokers of 50,000 partitions, {name}, in s",
            "controller_change",
            case,
            "headrace",
            (
                Bound("the last one resigned", "controller_resigned_s", 2),
                Bound("died with its broker", "controller_died_s", 2),
            ),
            before,
        )
        for case, name, before in (
            ("embedded", "metadata embedded", "the last one resigned 0.73, died with its broker 1.12"),
            ("zookeeper", "in a ZooKeeper", "the last one resigned 1.28, died with its broker 1.43 and 2.04"),
        )
    ),
)


def file_of(stem: str) -> Path:
    """Where the results of a recorded benchmark are."""
    return RESULTS / f"{stem}.json"


def stored() -> dict[str, dict[str, Any]]:
    """The recorded runs by stem, in the order of `RECORDED`."""
    return {stem: json.loads(file_of(stem).read_text()) for stem in RECORDED if file_of(stem).exists()}
