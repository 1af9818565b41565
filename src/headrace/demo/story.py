"""The steps of the demo, in order.

    half of the flights   produce ──▶ load
    a sixth, three times  produce ──▶ load, killed with -9 ──▶ load again
    nothing               load: commits nothing
    all                   Spark: is each record there once? what do the flights tell?

The driver is killed at another point each time (`headrace.demo.killed_load`).
"""

import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rich.columns import Columns
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.producer.producer import Producer, ProducerSettings
from headrace.demo import results
from headrace.demo.flights import PARTITIONS, FlightEvent, read_events
from headrace.demo.killed_load import CrashPoint
from headrace.demo.loads import Loads, orphan_files, table_state
from headrace.demo.stderr import stderr_into
from headrace.spark.session import session

TOPIC_CONFIG = {"retention.ms": "-1", "segment.ms": str(10 * 365 * 24 * 3600 * 1000)}
"""The events are of 2013: by Kafka's defaults they would be a decade past deletion, a segment each few."""

CHUNK = 5_000
KILLS = {
    CrashPoint.TASKS: "while Spark tasks write",
    CrashPoint.BEFORE_COMMIT: "all files written, nothing committed",
    CrashPoint.AFTER_COMMIT: "right after the commit",
}


@dataclass(slots=True)
class Story:
    """One telling: how many flights, through which broker, into which directory."""

    console: Console
    bootstrap: str
    topic: str
    flights: int
    output: Path

    @property
    def table(self) -> Path:
        return self.output / "flights"

    @property
    def chart(self) -> Path:
        return self.output / "delays.png"

    def run(self) -> bool:
        """All steps; whether every record is in the table exactly once."""
        events = read_events(self.flights)
        work = self.output / "work"
        work.mkdir()
        loads = Loads(self.bootstrap, self.topic, self.table, work)
        with Admin(self.bootstrap) as admin:
            admin.create_topics([NewTopic(self.topic, PARTITIONS, configs=TOPIC_CONFIG)])
        self.console.print(f"topic [bold]{self.topic}[/bold], {PARTITIONS} partitions, on {self.bootstrap}")
        half = self.flights // 2
        self._produce(events, half, "the first half")
        self._load(loads)
        for index, point in enumerate(KILLS):
            self._produce(
                events, (self.flights - half + index) // len(KILLS), f"more, part {index + 1} of {len(KILLS)}"
            )
            self._load_killed(loads, point)
            self._load(loads)
        self._load(loads)
        return self._show()

    def _produce(self, events: Iterator[FlightEvent], count: int, what: str) -> None:
        started = time.monotonic()
        with (
            self._progress(counted=True) as progress,
            Producer(self.bootstrap, ProducerSettings(compression="lz4")) as producer,
        ):
            task = progress.add_task(f"produce {what}", total=count)
            for chunk in _chunks(islice(events, count)):
                producer.send_columns(
                    self.topic,
                    keys=[event.key for event in chunk],
                    values=[event.value for event in chunk],
                    timestamps_ms=array("q", (event.timestamp_ms for event in chunk)),
                )
                progress.advance(task, len(chunk))
            producer.flush()
        self.console.print(f"  {count:,} flights acknowledged in {time.monotonic() - started:.1f} s")

    def _load(self, loads: Loads) -> None:
        with self._progress() as progress:
            progress.add_task("headrace load", total=None)
            result = loads.run()
        if result["committed"]:
            files = f"{result['files']} file{'s' * (result['files'] != 1)}"
            what = f"{result['rows']:,} rows in {files}, Delta version {result['table_version']}"
        else:
            what = "nothing new, nothing committed"
        self.console.print(f"  [green]loaded[/green]: {what}, {result['seconds']} s")

    def _load_killed(self, loads: Loads, point: CrashPoint) -> None:
        before, orphans = table_state(self.table), orphan_files(self.table)
        with self._progress() as progress:
            progress.add_task(f"headrace load, to be killed {KILLS[point]}", total=None)
            loads.run_and_be_killed(point)
        version, rows = table_state(self.table)
        changed = "as before" if (version, rows) == before else f"{rows - before[1]:,} rows more"
        left = orphan_files(self.table) - orphans
        stray = f"; {left} file{'s' * (left > 1)} that no commit names" if left else ""
        self.console.print(f"  [red]kill -9[/red] {KILLS[point]}: table at version {version}, {changed}{stray}")

    def _show(self) -> bool:
        with self._progress() as progress:
            progress.add_task("Spark reads the table", total=None)
            with stderr_into(self.output / "spark.log"):
                spark = session("headrace demo", short_lived=True)
            rows = results.read_table(spark, self.table).cache()
            checks = results.check_partitions(rows)
            delays, carriers = results.delays_by_hour(rows), results.cancellations(rows)
            spark.stop()
            results.draw_chart(delays, carriers, self.chart)
        is_exact = all(check.is_exact for check in checks) and sum(check.rows for check in checks) == self.flights
        for check in checks:
            verdict = "[green]each once[/green]" if check.is_exact else "[red]NOT each once[/red]"
            self.console.print(
                f"  partition {check.partition}: {check.rows:,} rows, {check.distinct:,} offsets, {verdict}"
            )
        self.console.print()
        self.console.print(Columns([results.delay_table(delays), results.carrier_table(carriers)], padding=(0, 4)))
        return is_exact

    def _progress(self, *, counted: bool = False) -> Progress:
        return Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            *([MofNCompleteColumn()] if counted else []),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )


def _chunks(events: Iterable[FlightEvent]) -> Iterator[list[FlightEvent]]:
    remaining = iter(events)
    while chunk := list(islice(remaining, CHUNK)):
        yield chunk
