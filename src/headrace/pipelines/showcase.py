"""`make pipelines`: every pipeline over a simulated site, then the flights, each compared with what it must find.

Starts a broker in a temporary directory, and sends it the site's events. The pipelines run one after the other, so that
each has a rate of its own, to the end of the topics. Their results are compared with plain Python over the same events,
and drawn (`pictures`).
"""

import json
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from rich.console import Console

from headrace.demo.server import running_broker
from headrace.demo.stderr import stderr_into
from headrace.pipelines.compare import COMPARISONS
from headrace.pipelines.flights import produce_flights, read_flights
from headrace.pipelines.operations import cancelled_airport_days, late_airport_hours
from headrace.pipelines.pictures import PICTURES
from headrace.pipelines.running import PIPELINES, STATE_STORE, TOPICS, PipelineEnvironment, finish
from headrace.pipelines.security import left_again_too_soon
from headrace.pipelines.site import Site, SiteEvent
from headrace.pipelines.topics import count_of, create_topics, produce
from headrace.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS_OF_LINE: Final = 10_000
FLIGHTS: Final[Mapping[str, int]] = {
    "hours of an airport in which a twentieth left two hours late": 818,
    "days of an airport with more than 30 % cancelled": 7,
    "aircraft that left the same airport within 20 minutes": 17,
    "aircraft that left another airport within 60 minutes": 3,
}
"""What is to be found in the flights of 2013."""


def show_all(site: Site, output: Path) -> bool:
    """Run everything, and draw into `output`. Returns whether all results are what they must be."""
    console = Console(highlight=False, soft_wrap=True)  # a line stays one where nothing tells the width
    output.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(prefix="pipelines-") as scratch,
        running_broker(Path(scratch, "data"), output / "broker.log") as bootstrap,
        stderr_into(output / "spark.log"),
    ):
        place = PipelineEnvironment(bootstrap, Path(scratch, "pipelines"))
        create_topics(bootstrap)
        began = time.monotonic()
        events = Path(scratch, "events")
        sent = produce(bootstrap, _kept(site.events(), events))
        console.print(f"{sent:,} events of {site.seconds} s of the site, sent in {time.monotonic() - began:.0f} s")
        spark = session("headrace pipelines", settings=STATE_STORE)
        is_right = [_show(console, spark, name, place, events, output) for name in PIPELINES]
        is_right.append(_show_flights(console, spark, bootstrap))
        spark.stop()
    console.print(f"pictures: {output}/*.svg")
    return all(is_right)


def _show(
    console: Console, spark: "SparkSession", name: str, place: PipelineEnvironment, events: Path, output: Path
) -> bool:
    """Run one pipeline, compare, and draw."""
    began = time.monotonic()
    finish(spark, [name], place)
    seconds = time.monotonic() - began
    count = count_of(place.bootstrap, TOPICS[name])
    found, expected = COMPARISONS[name](place, _read(events))
    verdict = "as plain Python finds it" if found == expected else "OTHER THAN PLAIN PYTHON FINDS IT"
    console.print(f"{name:10} {count:9,} events in {seconds:5.1f} s, {count / seconds:8,.0f} a second: {verdict}")
    (output / f"{name}.svg").write_text(PICTURES[name](place))
    return bool(found == expected)


def _kept(events: Iterator[SiteEvent], file: Path) -> Iterator[SiteEvent]:
    """The events, which are also kept in a file: to make them takes longer than to read them."""
    with file.open("w") as out:
        while chunk := list(islice(events, EVENTS_OF_LINE)):
            out.write(f"{json.dumps(chunk)}\n")
            yield from chunk


def _read(file: Path) -> Iterator[SiteEvent]:
    with file.open() as kept:
        for line in kept:
            yield from (SiteEvent(*fields) for fields in json.loads(line))


def _show_flights(console: Console, spark: "SparkSession", bootstrap: str) -> bool:
    """Count what is to be found in the flights."""
    produce_flights(bootstrap)
    flights = read_flights(spark, bootstrap).cache()
    is_same = [row.is_same for row in left_again_too_soon(flights).collect()]
    counted = (
        *(late_airport_hours(flights).count(), cancelled_airport_days(flights).count()),
        *(is_same.count(True), is_same.count(False)),
    )
    for (what, expected), found in zip(FLIGHTS.items(), counted, strict=True):
        console.print(f"{found:5} {what}" + ("" if found == expected else f": {expected} EXPECTED"))
    return counted == tuple(FLIGHTS.values())
