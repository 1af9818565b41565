"""What tests of lake tables share: records to write, runners of a topic, and the rows of a table."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import ClientSettings
from headrace.client.producer.producer import Producer
from headrace.lake.core.plan import RoundLimits
from headrace.lake.core.roll import Sizes
from headrace.lake.core.writer import Action
from headrace.lake.decoding import Decoder, RawDecoder
from headrace.lake.delta.delta_table import LoadTable
from headrace.lake.delta.location import Location
from headrace.lake.runner import LakeRunner, Round, RunSettings
from headrace.lake.topic_log import TopicLog
from headrace.lake.widening import WIDEN_BYTES

USUAL = Sizes()
SOON = RoundLimits(linger_ms=20, poll_ms=5)


def produce(bootstrap: str, topic: str, count: int, *, first: int = 0, partitions: int = 2) -> None:
    """Records `first` to `first + count`, in turn to each partition."""
    with Producer(bootstrap) as producer:
        for n in range(first, first + count):
            producer.send(topic, value_of(n), None if n % 3 == 0 else b"k%d" % n, n % partitions, timestamp_ms=1000 * n)


def value_of(n: int) -> bytes | None:
    return None if n % 5 == 0 else b"value-%d" % n


def raw_decoder(_schema: pa.Schema | None) -> Decoder:
    return RawDecoder()


@dataclass
class Running:
    """A runner, and what it told."""

    runner: LakeRunner
    rounds: list[Round] = field(default_factory=list)
    troubles: list[Exception] = field(default_factory=list)


@contextmanager
def runner_of(
    bootstrap: str,
    topic: str,
    place: Path | Location,
    *,
    limits: RoundLimits = SOON,
    sizes: Sizes = USUAL,
    round_bytes: int = 1 << 30,
    make_decoder: Callable[[pa.Schema | None], Decoder] = raw_decoder,
    on_action: Callable[[Action], None] = lambda _: None,
    headers: bool = False,
    partition_by: str | None = None,
    widen_bytes: int = WIDEN_BYTES,
) -> Iterator[Running]:
    """A runner of all partitions of a topic, which is not started yet."""
    with Cluster(bootstrap, ClientSettings(waits_for_brokers=True)) as cluster:
        log = TopicLog(cluster, topic, headers=headers)
        rounds: list[Round] = []
        troubles: list[Exception] = []
        place = Location.of(place)
        settings = RunSettings(
            place,
            partition_by=partition_by,
            limits=limits,
            sizes=sizes,
            round_bytes=round_bytes,
            widen_bytes=widen_bytes,
        )
        runner = LakeRunner(settings, log, make_decoder, log.partitions, rounds.append, troubles.append, on_action)
        yield Running(runner, rounds, troubles)


def run_once(bootstrap: str, topic: str, place: Path | Location, **options: object) -> list[Round]:
    """Write all that the topic has now."""
    with runner_of(bootstrap, topic, place, **options) as running:  # type: ignore[arg-type]
        running.runner.run(threading.Event(), once=True)
        return running.rounds


@contextmanager
def following(bootstrap: str, topic: str, place: Path, **options: object) -> Iterator[Running]:
    """A runner on a thread, until the block ends. Raises what ended it."""
    failures: list[BaseException] = []
    end = threading.Event()

    with runner_of(bootstrap, topic, place, **options) as running:  # type: ignore[arg-type]

        def run() -> None:
            try:
                running.runner.run(end)
            except BaseException as failed:
                failures.append(failed)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield running
        finally:
            end.set()
            thread.join()
        if failures:
            raise failures[0]


def opened(place: Path) -> LoadTable:
    """The newest snapshot of a table that is there."""
    found = LoadTable.open(place)
    assert found is not None
    return found


def rows_of(place: Path, *columns: str) -> list[dict[str, object]]:
    """The table's rows, by partition and offset."""
    table = opened(place)
    wanted = list(columns) or table.arrow_schema.names
    tables = [pq.ParquetFile(file).read(columns=list(columns) or None) for file in table.files]
    found: list[dict[str, object]] = []
    for each in tables:
        found += [{name: row.get(name) for name in wanted} for row in each.to_pylist()]
    return sorted(found, key=lambda row: (row.get("partition", 0), row.get("offset", 0)))


def offsets_of(place: Path) -> Counter[tuple[object, object]]:
    """How often each (partition, offset) is in the table."""
    return Counter((row["partition"], row["offset"]) for row in rows_of(place, "partition", "offset"))
