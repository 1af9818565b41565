"""`headrace mirror --from HOST:PORT --to HOST:PORT TOPIC...`: copies topics of one cluster into another.

headrace mirror --from east:9092 --to batch:9092 views searches
headrace mirror --from east:9092 --to batch:9092 --matching 'site\\..*' --prefix east.
headrace mirror --from east:9092 --to batch:9092 views --until-end --json
"""

import re
import signal
import sys
from contextlib import suppress
from enum import StrEnum
from typing import Annotated

import typer

from headrace.cli.output import complain, print_json
from headrace.cli.shared import AsJson, UsageProblem
from headrace.client.core.settings import ClientSettings, parse_addresses
from headrace.client.security.client_options import client_settings
from headrace.client.security.command_options import command_options
from headrace.mirror.mirror import Mirror, MirrorCluster, MirrorSettings, Totals
from headrace.mirror.topics import Selection

_CLIENT = ClientSettings(client_id="headrace-mirror")


class Begin(StrEnum):
    """Where a partition without progress begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Lost(StrEnum):
    """What to do where records were deleted before they were mirrored."""

    STOP = "stop"
    SKIP = "skip"


def mirror(
    source: Annotated[str, typer.Option("--from", metavar="HOST:PORT", help="Brokers of the source.")],
    target: Annotated[str, typer.Option("--to", metavar="HOST:PORT", help="Brokers of the target.")],
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC...]", help="Topics to mirror.")] = None,
    matching: Annotated[
        str | None,
        typer.Option("--matching", metavar="REGEX", help="Also topics whose whole name matches, new ones too."),
    ] = None,
    source_config: Annotated[
        str | None, typer.Option("--from-config", metavar="FILE", help="Kafka's client options for the source.")
    ] = None,
    target_config: Annotated[
        str | None, typer.Option("--to-config", metavar="FILE", help="Kafka's client options for the target.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The name of this mirror; by default the source's cluster id.")
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="What the target's topics have before their names.")] = "",
    begin: Annotated[Begin, typer.Option("--begin", help="Where to begin without progress.")] = Begin.EARLIEST,
    lost: Annotated[
        Lost, typer.Option("--lost", help="What to do where records were deleted before they were mirrored.")
    ] = Lost.STOP,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", help="Of topics that are created in the target; -1: its default.")
    ] = -1,
    interval_ms: Annotated[
        int, typer.Option("--interval-ms", min=1, max=30_000, help="The most time between two commits.")
    ] = 500,
    compression: Annotated[
        str, typer.Option("--compression", "-z", help="Codec: none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    until_end: Annotated[bool, typer.Option("--until-end", help="End when what is there now is mirrored.")] = False,
    json: AsJson = False,
) -> None:
    """Mirror topics of one cluster into another, each record once, until Ctrl-C."""
    selection = Selection(tuple(topics or ()), _pattern(matching), prefix, replication_factor)
    settings = MirrorSettings(
        selection, name, begin is Begin.LATEST, lost is Lost.SKIP, interval_ms, compression=compression
    )
    is_terminal = sys.stderr.isatty()

    def show(totals: Totals) -> None:
        print(f"\r{totals.records} records\x1b[K", end="", file=sys.stderr, flush=True)

    places = _place("--from", source, source_config), _place("--to", target, target_config)
    with Mirror(*places, settings, complain) as running:
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(ValueError):  # not the main thread
                signal.signal(number, lambda *_: running.stop())
        totals = running.run(until_end=until_end, on_commit=show if is_terminal else lambda totals: None)
    if is_terminal:
        print(file=sys.stderr)
    if json:
        print_json(
            {
                "name": running.name,
                "records": totals.records,
                "returned": totals.returned,
                "lost": totals.lost,
                "transactions": totals.transactions,
            }
        )
    else:
        print(f"{totals.records} records in {totals.transactions} transactions")


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as wrong:
        raise UsageProblem(f"--matching {text!r} is not a regular expression: {wrong}") from None


def _place(option: str, bootstrap: str, config: str | None) -> MirrorCluster:
    try:
        parse_addresses(bootstrap)
    except ValueError as wrong:
        raise UsageProblem(f"{option}: {wrong}") from None
    found = command_options(bootstrap, config, environ={})
    return MirrorCluster(found.bootstrap, client_settings(found.options, _CLIENT))
