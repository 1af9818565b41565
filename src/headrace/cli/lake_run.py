"""`headrace lake run`: writes the tables of topics until it is stopped.

Each table has a thread and a client of its own. A table that fails is told on stderr, and the others go on; the exit
code is 1 then. SIGTERM and Ctrl-C end all after the commit of what they have read.
"""

import json as json_text
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.lake_library import defined, library
from headrace.cli.output import complain
from headrace.cli.quantities import duration_ms
from headrace.cli.shared import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, UsageProblem, access, cluster_of
from headrace.config.lake_definition import LakeDefinition
from headrace.errors import ErrorCode, KafkaError
from headrace.lake.definitions import Definitions

if TYPE_CHECKING:
    from headrace.lake.runner import Round
    from headrace.lake.service import ServiceOptions

_FAILED = 1


def run(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="The topics whose tables are written.")
    ] = None,
    all_topics: Annotated[
        bool,
        typer.Option(
            "--all", help="All topics that have a table now. Whoever may alter a topic's settings chooses where."
        ),
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Write what there is now, and end.")] = False,
    linger: Annotated[
        str, typer.Option(metavar="TIME", help="How long records wait for more before they are committed.")
    ] = "4s",
    group: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="The group that divides partitions; headrace-lake-TOPIC by default."),
    ] = None,
    compact_at: Annotated[
        int, typer.Option(metavar="FILES", min=0, help="Compact the table when it has so many small files; 0: never.")
    ] = 48,
    vacuum_hours: Annotated[
        int | None,
        typer.Option(
            metavar="HOURS",
            min=1,
            help="Each hour, delete files that no version of the last HOURS needs. Longer than any query or write.",
        ),
    ] = None,
    widen_up_to: Annotated[
        int,
        typer.Option(
            metavar="MB",
            min=0,
            help="Write a table of at most so many MB anew when a column of whole numbers gets others; 0: rescue them.",
        ),
    ] = 1_000,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Write the lake tables of topics until SIGTERM or Ctrl-C. Several such processes share the partitions."""
    if bool(topics) == all_topics:
        raise UsageProblem("give either TOPIC arguments or --all")
    linger_ms = duration_ms("--linger", linger)
    with cluster_of(bootstrap) as cluster:
        found = Definitions(cluster).all() if all_topics else {one: defined(cluster, one) for one in topics or ()}
    if not found:
        raise KafkaError("no topic has a lake table: add one with headrace lake add", ErrorCode.RESOURCE_NOT_FOUND)
    service = library("headrace.lake.service")
    options = service.ServiceOptions(once, group, linger_ms, service.UpkeepSettings(compact_at, vacuum_hours))
    options = replace(options, widen_bytes=widen_up_to * 1_000_000)
    if _run_all(bootstrap, found, options, as_json=json):
        raise typer.Exit(_FAILED)


def _run_all(
    bootstrap: str, tables: "Mapping[str, LakeDefinition]", options: "ServiceOptions", *, as_json: bool
) -> bool:
    """Runs each table on a thread; returns whether one of them failed."""
    service, client = library("headrace.lake.service"), access(bootstrap)
    failed: list[str] = []
    printing = threading.Lock()

    def run_one(topic: str, definition: LakeDefinition, end: threading.Event) -> None:
        def tell(done: "Round") -> None:
            with printing:
                _tell(topic, done, as_json)

        def trouble(error: Exception) -> None:
            complain(f"lake {topic}: {error}; trying again")

        try:
            service.run_table(*client, topic, definition, options, end, tell, trouble)
        except Exception as error:
            failed.append(topic)
            complain(f"lake {topic}: {error}")

    with _ended_by_signals() as end:
        threads = [
            threading.Thread(target=run_one, args=(topic, one, end), name=f"lake-{topic}")
            for topic, one in tables.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return bool(failed)


def _tell(topic: str, done: "Round", as_json: bool) -> None:
    if as_json:
        offsets = {str(one.partition.partition): [one.start, one.end] for one in done.slices}
        told = {"topic": topic, "table_version": done.version, "rows": done.rows, "files": done.files}
        told |= {"bytes": done.size, "rescued": done.rescued, "lost": done.lost, "offsets": offsets}
        print(json_text.dumps(told))
    else:
        extra = f", {done.rescued} rescued" if done.rescued else ""
        extra += f", {done.lost} offsets lost before them" if done.lost else ""
        rows, files = f"{done.rows} row{'s' * (done.rows != 1)}", f"{done.files} file{'s' * (done.files != 1)}"
        print(f"{topic}: {rows} in {files}, version {done.version}{extra}")
    sys.stdout.flush()


@contextmanager
def _ended_by_signals() -> "Iterator[threading.Event]":
    """An event that SIGTERM and SIGINT set: runners end after the commit of what they have read."""
    end = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, lambda *_: end.set())
    try:
        yield end
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
